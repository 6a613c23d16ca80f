"""Instruction prompts asked in blocks: stored and reused by how many were asked, and resumed where they stopped."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evals.results import Item, Result, main_result
from evals.splits import secondary_task_limit
from evals.subject import Answer, Subject
from pipelines.evaluation.checkpoint_measurement import (
    BlockMeasurement,
    StopRule,
    comparable_results,
    measure_checkpoint,
)
from pipelines.evaluation.compare import compare_results
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.project.project import Project
from recovery.lab import BASE

PLAN = EvalPlan("behaviour", limit=40, secondary_limit=1)
REFUSALS = secondary_task_limit(PLAN.limit, PLAN.secondary_limit)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.open(tmp_path, str(BASE))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many prompts the model was asked at once, in each call."""
    counts: list[int] = []
    answer = Subject.answer

    def counting(self: Subject, prompts: Sequence[Any], max_new_tokens: int) -> list[Answer]:
        if len(prompts) != REFUSALS:  # they are not asked in blocks
            counts.append(len(prompts))
        return answer(self, prompts, max_new_tokens)

    monkeypatch.setattr(Subject, "answer", counting)
    return counts


def rule(n: int) -> StopRule:
    return StopRule(10, 40, lambda items: len(items) >= n)


def measure(project: Project, rule: StopRule | None) -> Result:
    main = main_result(measure_checkpoint(project, project.clean, PLAN, None, rule=rule), "behaviour")
    assert main is not None
    return main


def test_what_was_asked_is_reused_where_it_is_enough(project: Project, calls: list[int]) -> None:
    first = measure(project, rule(20))
    assert (len(first.items), first.settings["of"]) == (20, 40)
    assert calls == [10, 10]
    assert measure(project, rule(20)).items == measure(project, rule(10)).items == first.items
    assert calls == [10, 10]
    more = measure(project, rule(30))
    assert more.items[:20] == first.items
    assert calls == [10, 10, 10]
    whole = measure(project, None)  # in their own order
    assert len(whole.items) == 40
    assert {item.key: item.passed for item in more.items}.items() <= whole.passed_by_key().items()
    assert calls == [10, 10, 10, 40]
    assert measure(project, rule(20)).items == whole.items  # all of them were asked


def test_one_block_is_asked_where_the_other_suites_fail_anyway(project: Project, calls: list[int]) -> None:
    """The other suites are measured before; their stored results decide the same."""
    plan, seen = replace(PLAN, suite="all"), list[set[str]]()

    def fails_anyway(others: list[Result]) -> bool:
        seen.append({result.suite for result in others})
        return True

    rule = StopRule(10, 40, lambda items: False, fails_anyway)
    for _ in range(2):
        main = main_result(measure_checkpoint(project, project.clean, plan, None, rule=rule), "behaviour")
        assert main is not None
        assert (len(main.items), main.settings["of"]) == (10, 40)
    assert seen == [{"retention"}] * 2
    assert [n for n in calls if n in (10, 40)] == [10]


def test_an_interruption_costs_at_most_one_block(project: Project, calls: list[int]) -> None:
    def interrupted(items: list[Item]) -> bool:
        if len(items) == 20:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        measure(project, StopRule(10, 40, interrupted))
    [progress] = (project.home / "cache").glob("blocks-*.jsonl")
    assert len(progress.read_text().splitlines()) == 20
    with progress.open("a") as file:
        file.write('{"key": "half a li')
    resumed = measure(project, rule(30))
    assert calls == [10, 10, 10]
    assert not progress.exists()
    again = Project.open(project.root.parent / "again", str(BASE))
    uninterrupted = measure(again, rule(30))
    assert resumed.items == uninterrupted.items
    assert resumed.metrics == uninterrupted.metrics


def test_all_blocks_are_the_whole_measurement(project: Project, calls: list[int]) -> None:
    in_blocks = measure(project, rule(1000))
    assert calls == [10, 10, 10, 10]
    assert measure(project, None).items == in_blocks.items
    assert calls == [10, 10, 10, 10]


def test_a_comparison_pairs_the_prompts_that_both_were_asked(project: Project) -> None:
    few = measure(project, rule(20))
    whole = measure(project, None)
    [comparison] = compare_results([whole], [few])
    assert comparison.pair.n == 20
    [comparable] = comparable_results(project, project.clean, [few])
    assert comparable.items == whole.items


def test_answers_under_another_chat_template_are_not_continued(project: Project, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(BASE, model)
    checkpoint = project.resolve(str(model))
    measurement = BlockMeasurement(project, checkpoint, PLAN, {}, rule(20))
    first = measurement.key(40)
    assert first == measurement.key(40)
    file = next(model / name for name in ("chat_template.jinja", "tokenizer_config.json") if (model / name).is_file())
    file.write_text(file.read_text() + "\n")
    assert measurement.key(40) != first
