"""The gate's limits on instruction following and on what the model knew before."""

import json
import random
from dataclasses import replace

import pytest

from db.verdict_lines import measure_lines
from evals.results import Item, Metric, Result
from pipelines.evaluation.printed_tables import verdict_table
from pipelines.gate.verdict import OtherResults, judge, judge_behaviour, judge_knowledge, judge_retention
from pipelines.settings.schema import Gate


def result(passes: list[bool], task: str, suite: str = "retention") -> Result:
    items = [Item(str(i), "", "", passed) for i, passed in enumerate(passes)]
    return Result(task, suite, "lab", {"match": Metric.from_passes(passes)}, items, {}, 0.0)


def graded(task: str, n: int = 50) -> Result:
    metrics = {"f1": Metric.from_values([0.6] * n)}
    return Result(task, "retention", "lab", metrics, [Item(str(i), "", "", False) for i in range(n)], {}, 0.0)


def lost(passed: int, n: int = 300) -> list[bool]:
    return [i < passed for i in range(n)]


CLEAN = [result([True] * 300, "arithmetic"), result([True] * 300, "own_world")]
FOLLOWED = result([True] * 400, "instructions", "behaviour")


def verdict_with(recovered: list[Result], gate: Gate = Gate()):  # noqa: B008
    return judge(gate, FOLLOWED, FOLLOWED, OtherResults(retention=(CLEAN, recovered)))


def test_a_model_that_lost_a_third_of_a_task_is_rejected_and_the_reason_names_the_task() -> None:
    verdict = verdict_with([result([True] * 300, "arithmetic"), result(lost(194), "own_world")])
    assert (verdict.passed, verdict.outcome) == (False, "failed")
    assert verdict.retention.value == pytest.approx(-106 / 600)
    assert verdict.retention.limit == pytest.approx(-0.05)
    assert verdict.retention.tasks == {
        "arithmetic": {"n": 300, "lost": 0, "gained": 0},
        "own_world": {"n": 300, "lost": 106, "gained": 0},
    }
    assert verdict.reason == "what it knew before is short of its limit"
    line = measure_lines(verdict.as_dict())[-1]
    assert line[2:8] == (False, "missed", "1.000", "0.823", "0.796", "0.950")
    assert line.details == ("600 items", "own_world: 106 lost, none gained")


@pytest.mark.parametrize(("passed", "is_enough"), [(19, True), (18, False)])
def test_knowledge_that_is_exactly_at_its_limit_is_enough(passed: int, is_enough: bool) -> None:
    answers = result([i < passed for i in range(53)], "closed_book", "knowledge")
    assert judge_knowledge(answers, 0.95, 20 / 53, "gate.keep_knowledge").passed is is_enough


def test_a_small_loss_passes() -> None:
    verdict = verdict_with([result(lost(298), "arithmetic"), result(lost(290), "own_world")])
    assert verdict.passed
    losses = ("own_world: 10 lost, none gained", "arithmetic: 2 lost, none gained")
    assert measure_lines(verdict.as_dict())[-1].details[1:] == losses
    assert json.loads(json.dumps(verdict.as_dict()))["retention"]["tasks"]["own_world"]["lost"] == 10


def test_too_few_items_are_inconclusive_unless_something_else_failed() -> None:
    few = [result([True] * 10, "arithmetic")]
    verdict = judge(Gate(), FOLLOWED, FOLLOWED, OtherResults(retention=(few, few)))
    assert (verdict.passed, verdict.outcome) == (False, "inconclusive")
    assert verdict.retention.needed > 10
    assert verdict.reason == "what it knew before is not decided"
    worse = replace(FOLLOWED, items=[replace(i, passed=int(i.key) < 300) for i in FOLLOWED.items])
    worse = replace(worse, metrics={"match": Metric.from_passes([i.passed for i in worse.items])})
    assert judge(Gate(), FOLLOWED, worse, OtherResults(retention=(few, few))).outcome == "failed"


def test_items_of_two_tasks_with_the_same_keys_are_different_items() -> None:
    swapped = [result(lost(0), "arithmetic"), result([True] * 300, "own_world")]
    judgement = judge_retention(Gate(), CLEAN, swapped)
    assert (judgement.n, judgement.value) == (600, -0.5)


def test_graded_tasks_are_left_out_and_the_reason_says_so() -> None:
    before, after = [*CLEAN, graded("squad")], [*CLEAN, graded("squad")]
    verdict = judge(Gate(), FOLLOWED, FOLLOWED, OtherResults(retention=(before, after)))
    assert verdict.passed
    assert (verdict.retention.n, verdict.retention.graded) == (600, ("squad",))
    assert "left out, as their items have grades: squad" in measure_lines(verdict.as_dict())[-1].details
    only = judge(Gate(), FOLLOWED, FOLLOWED, OtherResults(retention=([graded("squad")], [graded("squad")])))
    assert only.passed
    assert only.retention is None


def test_without_a_measurement_it_is_not_judged_and_the_reason_says_so() -> None:
    verdict = verdict_with([])
    assert verdict.passed
    assert verdict.retention is None
    assert verdict.as_dict()["retention"] is None
    assert measure_lines(verdict.as_dict())[-1].word == "not judged"


def test_the_limit_is_a_share_of_what_the_clean_model_knew() -> None:
    clean = [result(lost(200, 400), "general")]
    judgement = judge_retention(Gate(keep_retention=0.9), clean, clean)
    assert judgement.limit == pytest.approx(-0.05)
    nothing_left = [result(lost(0, 400), "general")]
    off = judge_retention(Gate(keep_retention=0.0), clean, nothing_left)
    assert off.passed
    knew_nothing = judge_retention(Gate(), nothing_left, nothing_left)
    assert knew_nothing.passed


@pytest.mark.parametrize(("true_loss", "outcome"), [(0.1, "passed"), (0.0, "failed")])
def test_errors_are_rare(true_loss: float, outcome: str) -> None:
    """A model that lost a tenth is hardly ever promoted, and one that lost nothing is never rejected."""
    rng, wrong = random.Random(0), 0
    for _ in range(100):
        before = [rng.random() < 0.9 for _ in range(600)]
        after = [passed and rng.random() >= true_loss / 0.9 for passed in before]
        verdict = judge(
            Gate(), FOLLOWED, FOLLOWED, OtherResults(retention=([result(before, "t")], [result(after, "t")]))
        )
        wrong += verdict.outcome == outcome
    assert wrong <= 5


def test_the_limit_on_instruction_following_names_its_setting() -> None:
    clean = result(lost(200, 1000), "instructions", "behaviour")
    judgement = judge_behaviour(Gate(), clean, clean)
    assert (judgement.limit, judgement.setting) == (-0.03, "gate.behaviour_margin")


def test_the_printed_verdict_has_one_line_a_measure_and_then_what_was_lost() -> None:
    verdict = verdict_with([result([True] * 300, "arithmetic"), result(lost(194), "own_world")])
    assert verdict_table(verdict.as_dict()) == [
        "                         clean   now       with 95 %    limit",
        "instruction following    1.000 → 1.000       ≥ 0.993    0.970  met",
        "new knowledge          not judged",
        "what it knew before      1.000 → 0.823       ≥ 0.796    0.950  missed",
        "instruction following:",
        "  400 prompts",
        "new knowledge:",
        "  there are no questions on the documents (--questions)",
        "what it knew before:",
        "  600 items",
        "  own_world: 106 lost, none gained",
    ]
