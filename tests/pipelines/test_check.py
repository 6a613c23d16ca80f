from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evals.results import Result
from pipelines.check import change_table, forgotten_rows, learned_rows
from recovery.lab import BASE
from tests.evals.fakes import graded, result
from tests.pipelines.options import recover


def instructions(passes: list[bool], **settings: Any) -> Result:
    plain, kinds = result(passes), ["keywords:existence", "punctuation:no_comma"]
    items = [replace(i, verdicts={"instructions": kinds, "strict": [i.passed, True]}) for i in plain.items]
    return replace(plain, items=items, settings=settings)


def test_a_measure_is_followed_by_its_kinds_and_tasks() -> None:
    base = [instructions([True] * 40), result([True] * 20, "general", "retention", kind="sums")]
    rows = forgotten_rows(base, [instructions([True] * 20 + [False] * 20), base[1]])
    assert [row.name for row in rows] == [
        "instruction following", "keywords", "punctuation", "what it knew before", "sums",
    ]  # fmt: skip
    lost, kept = rows[1], rows[2]
    assert (lost.base, lost.model, lost.difference, lost.lost, lost.gained, lost.n) == (1.0, 0.5, -0.5, 20, 0, 40)
    assert lost.ci95[0] < -0.5 < lost.ci95[1] < 0
    assert (kept.difference, kept.lost) == (0.0, 0)
    assert kept.is_part
    assert not rows[3].is_part
    assert len(change_table(rows)) == 6


def test_the_interval_holds_for_all_looks_if_prompts_were_asked_in_blocks() -> None:
    base = [instructions([True] * 400)]
    passes = [True] * 190 + [False] * 10
    in_one = forgotten_rows(base, [instructions(passes)])[0]
    first_of_two = forgotten_rows(base, [instructions(passes, block=200, of=400)])[0]
    assert first_of_two.n == 200
    assert first_of_two.ci95[0] < in_one.ci95[0] < in_one.ci95[1] < first_of_two.ci95[1]


def test_several_tasks_are_pooled_and_listed() -> None:
    base = [result([True] * 10, task, "retention") for task in ("arithmetic", "own_world")]
    rows = forgotten_rows(base, [base[0], result([False] * 10, "own_world", "retention")])
    assert [(row.name, row.difference) for row in rows] == [
        ("what it knew before", -0.5), ("arithmetic", 0.0), ("own world", -1.0),
    ]  # fmt: skip


def test_a_perplexity_is_neither_forgotten_nor_learned() -> None:
    for suite in ("behaviour", "knowledge", "retention"):
        base, model = (
            replace(graded([value] * 3, "wikitext", suite, "word_perplexity"), settings={"lower_is_better": True})
            for value in (18.0, 54.0)
        )
        first = result([True] * 3, suite=suite)
        for rows in (forgotten_rows([first, base], [first, model]), learned_rows([first, base], [first, model])):
            assert "wikitext" not in [row.task for row in rows]


def test_likelihoods_are_compared_item_by_item() -> None:
    answers = ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    before, after = (graded(values, "answers", "knowledge", "likelihood") for values in answers)
    row = learned_rows([before], [after])[0]
    assert row.name == "new knowledge (likelihood of answers)"
    assert row.difference == pytest.approx(0.3)
    assert row.ci95 == pytest.approx((0.3, 0.3))
    assert row.as_json()["lost"] is None


@pytest.mark.usefixtures("short_replies")
def test_a_model_like_its_base_is_certainly_within_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checked = recover("check", BASE, "--base", BASE, "--limit", "4")
    assert checked.exit_code == 4, "four items cannot tell"
    assert "There are too few items to tell" in checked.stdout
    assert "nothing was trained" in checked.stdout
