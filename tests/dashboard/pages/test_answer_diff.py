"""Two answers beside each other: counts, certainty, differences, filters."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.pages.answer_diff import LONGEST_DIFFERENCE, Flips, flips, instructions, kinds_of, marked, matches
from db.views import Item
from evals.stats.paired_tests import mcnemar


def item(passed, prompt="Write.", answer="Words.", kinds=()):
    verdicts = {"instructions": list(kinds), "strict": [passed] * len(kinds)}
    return Item("k", prompt, answer, passed, verdicts)


def test_lost_and_gained_are_counted_where_both_were_judged():
    before, after = (
        {"a": True, "b": True, "c": False, "d": None, "e": True},
        {"a": False, "b": True, "c": True, "d": True},
    )
    assert flips(before, after) == Flips(3, 1, 1)


@given(lost=st.integers(0, 60), gained=st.integers(0, 60))
def test_certainty_is_what_the_gate_would_say(lost, gained):
    assert Flips(200, lost, gained).p_value == pytest.approx(mcnemar(lost, gained))


@given(st.text(max_size=80), st.text(max_size=80))
def test_marking_a_difference_loses_no_word(text, beside):
    words = html.unescape(re.sub(r"</?mark>", "", marked(text, beside)))
    assert len(words) == len(text)
    assert marked(text, text).count("<mark>") == 0


def test_only_what_differs_is_marked():
    assert marked("Paris is big.", "Paris is small.") == "Paris is <mark>big</mark>."
    assert "<mark>" not in marked("x" * (LONGEST_DIFFERENCE + 1), "y"), "too long to be compared word by word"


def test_rows_are_filtered():
    lost, kept = [item(True, kinds=["a:b"]), item(False)], [item(True), item(True, answer="Other words")]
    assert [matches(row, "", "", "lost") for row in (lost, kept)] == [True, False]
    assert [matches(row, "", "", "flipped") for row in (lost, kept)] == [True, False]
    assert [matches(row, "", "", "gained") for row in (lost[::-1], kept)] == [True, False]
    assert [matches(row, "a:b", "", "") for row in (lost, kept)] == [True, False]
    assert matches(lost, "a", "", ""), "a family of instructions"
    assert not matches(lost, "a:", "", "")
    assert kinds_of(lost) == ["a", "a:b"]
    assert [matches(row, "", "OTHER", "") for row in (lost, kept)] == [False, True]
    assert matches([item(True), None], "", "", "lost") is False


def test_verdicts_of_an_unknown_shape_are_no_instructions():
    for verdicts in (None, [True], {"strict": [True]}, {"instructions": "a", "strict": [True]}):
        assert instructions(Item("k", "p", "a", True, verdicts)) == []
