from typing import Any

import pytest

from evals.results import Item, Metric, Result
from pipelines.check import change_table, forgotten_rows, learned_rows


def knew(task: str, passes: list[bool], **verdicts: str) -> Result:
    items = [Item(str(i), f"prompt {i}", "", passed, verdicts) for i, passed in enumerate(passes)]
    return Result(task, "retention", "data", {"match": Metric.from_passes(passes)}, items, {}, 1.0)


def instructions(passes: list[bool], **settings: Any) -> Result:
    kinds = ["keywords:existence", "punctuation:no_comma"]
    items = [
        Item(str(i), f"prompt {i}", "", passed, {"instructions": kinds, "strict": [passed, True]})
        for i, passed in enumerate(passes)
    ]
    metrics = {"prompt_level_strict_acc": Metric.from_passes(passes)}
    return Result("ifeval", "behaviour", "data", metrics, items, settings, 1.0)


def test_a_measure_is_followed_by_its_kinds_and_tasks() -> None:
    base = [instructions([True] * 40), knew("general", [True] * 20, kind="sums")]
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
    assert len(change_table(rows, ("base", "model"))) == 6


def test_the_interval_holds_for_all_looks_if_prompts_were_asked_in_blocks() -> None:
    base = [instructions([True] * 400)]
    passes = [True] * 190 + [False] * 10
    in_one = forgotten_rows(base, [instructions(passes)])[0]
    first_of_two = forgotten_rows(base, [instructions(passes, block=200, of=400)])[0]
    assert first_of_two.n == 200
    assert first_of_two.ci95[0] < in_one.ci95[0] < in_one.ci95[1] < first_of_two.ci95[1]


def test_several_tasks_are_pooled_and_listed() -> None:
    base = [knew("arithmetic", [True] * 10), knew("own_world", [True] * 10)]
    rows = forgotten_rows(base, [base[0], knew("own_world", [False] * 10)])
    assert [(row.name, row.difference) for row in rows] == [
        ("what it knew before", -0.5), ("arithmetic", 0.0), ("own world", -1.0),
    ]  # fmt: skip


def test_likelihoods_are_compared_item_by_item() -> None:
    def answers(values: list[float]) -> Result:
        items = [Item(str(i), "Q", "A", False, {"likelihood": value}) for i, value in enumerate(values)]
        return Result("answers", "knowledge", "file", {"likelihood": Metric.from_values(values)}, items, {}, 1.0)

    row = learned_rows([answers([0.1, 0.2, 0.3])], [answers([0.4, 0.5, 0.6])])[0]
    assert row.name == "new knowledge (likelihood of answers)"
    assert row.difference == pytest.approx(0.3)
    assert row.ci95 == pytest.approx((0.3, 0.3))
    assert row.as_json()["lost"] is None
