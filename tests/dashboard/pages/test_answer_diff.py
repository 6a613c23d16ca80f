import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.pages.compare import (
    MAX_DIFF_LENGTH,
    Flips,
    count_flips,
    diff_pieces,
    instructions,
    kinds_of,
    matches_filter,
)
from db.tables import Item
from evals.stats.paired_comparison import mcnemar


def item(passed, prompt="Write.", answer="Words.", kinds=()):
    verdicts = {"instructions": list(kinds), "strict": [passed] * len(kinds)}
    return Item(key="k", prompt=prompt, answer=answer, passed=passed, verdicts=verdicts)


def test_lost_and_gained_are_counted_where_both_were_graded():
    before, after = (
        {"a": True, "b": True, "c": False, "d": None, "e": True},
        {"a": False, "b": True, "c": True, "d": True},
    )
    assert count_flips(before, after) == Flips(3, 1, 1)


@given(lost=st.integers(0, 60), gained=st.integers(0, 60))
def test_the_p_value_is_that_of_the_gate(lost, gained):
    assert Flips(200, lost, gained).p_value == pytest.approx(mcnemar(lost, gained))


@given(st.text(max_size=80), st.text(max_size=80))
def test_the_pieces_of_a_difference_are_the_whole_text(text, other):
    pieces = diff_pieces(text, other)
    assert ["".join(piece for piece, _ in side) for side in pieces] == [text, other]
    same = [[piece for piece in side if not piece[1]] for side in pieces]
    assert "".join(piece for piece, _ in same[0]) == "".join(piece for piece, _ in same[1])
    assert not any(differs for side in diff_pieces(text, text) for _, differs in side)


def test_only_differing_words_are_marked():
    big, small = ([("Paris is ", False), (size, True), (".", False)] for size in ("big", "small"))
    assert diff_pieces("Paris is big.", "Paris is small.") == (big, small)
    too_long = diff_pieces("x" * (MAX_DIFF_LENGTH + 1), "y")
    assert too_long == ([("x" * MAX_DIFF_LENGTH + "…", False)], [("y", False)])


def test_of_texts_that_repeat_themselves_no_words_are_marked(monkeypatch):
    paris, lyon = (f"The capital of France is {city}. " * 160 for city in ("Paris", "Lyon"))
    monkeypatch.setattr("difflib.SequenceMatcher", None)  # it would take seconds
    assert diff_pieces(paris, lyon) == ([(paris, False)], [(lyon, False)])


def test_loops_that_differ_in_their_ends_are_compared():
    loop = "The capital of France is Paris. " * 160
    assert diff_pieces(loop + "Yes", loop + "No") == ([(loop, False), ("Yes", True)], [(loop, False), ("No", True)])


def test_rows_are_filtered():
    lost, unchanged = [item(True, kinds=["a:b"]), item(False)], [item(True), item(True, answer="Other words")]
    assert [matches_filter(row, "", "", "lost") for row in (lost, unchanged)] == [True, False]
    assert [matches_filter(row, "", "", "flipped") for row in (lost, unchanged)] == [True, False]
    assert [matches_filter(row, "", "", "gained") for row in (lost[::-1], unchanged)] == [True, False]
    assert [matches_filter(row, "a:b", "", "") for row in (lost, unchanged)] == [True, False]
    assert matches_filter(lost, "a", "", ""), "a family of instructions"
    assert not matches_filter(lost, "a:", "", "")
    assert kinds_of([one.verdicts for one in lost]) == ["a", "a:b"]
    assert [matches_filter(row, "", "OTHER", "") for row in (lost, unchanged)] == [False, True]
    assert matches_filter([item(True), None], "", "", "lost") is False


def test_verdicts_of_an_unknown_shape_are_no_instructions():
    for verdicts in (None, [True], {"strict": [True]}, {"instructions": "a", "strict": [True]}):
        assert instructions(verdicts) == []
