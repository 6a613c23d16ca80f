"""When a distillation has done enough, costs too much, or goes astray."""

from typing import Any

import pytest

from pipelines.settings import Distill
from pipelines.training.early_stopping import HOLDS_IN_A_ROW, Probe, Watch
from recovery.telemetry.step_record import StepRecord

LIMITS = Distill(probe_every=2)


def record(step: int, **values: Any) -> StepRecord:
    base: dict[str, Any] = dict.fromkeys(StepRecord.__dataclass_fields__, 0.0)
    return StepRecord(**base | {"step": step, "update_seconds": 1.0, "flops": 10.0, "target_tokens": 7} | values)


def run(watch: Watch, records: list[StepRecord]) -> tuple[int, str]:
    for each in records:
        _, reason = watch.after(each, steps=len(records))
        if reason:
            return each.step, reason
    return -1, ""


def test_it_stops_once_the_bounds_held_twice_in_a_row_and_not_before() -> None:
    seen = iter([True, False, True, True, True])
    watch = Watch(LIMITS, lambda best: Probe(0.9, None, 0.0, next(seen)))
    step, reason = run(watch, [record(i) for i in range(20)])
    assert step == 7  # probes after steps 2, 4, 6 and 8
    assert str(HOLDS_IN_A_ROW) in reason


def test_the_best_knowledge_seen_is_what_later_probes_are_judged_by() -> None:
    known, given = iter([0.5, 0.9, 0.7]), []

    def look(best: float | None) -> Probe:
        given.append(best)
        return Probe(0.9, next(known), 0.0, False)

    run(Watch(LIMITS, look), [record(i) for i in range(8)])  # the last step is not probed: it is measured
    assert given == [None, 0.5, 0.9]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (LIMITS.model_copy(update={"max_minutes": 0.05}), "minutes"),
        (LIMITS.model_copy(update={"max_flops": 35.0}), "FLOPs"),
    ],
)
def test_a_budget_ends_it(limits: Distill, reason: str) -> None:
    step, said = run(Watch(limits), [record(i) for i in range(20)])
    assert step == 3
    assert reason in said


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [("kl", 2.0, "KL"), ("entropy", 5.0, "entropy"), ("truncated", 0.9, "no longer end")],
)
def test_running_away_is_seen_against_how_it_began(name: str, value: float, reason: str) -> None:
    watch = Watch(LIMITS)
    began = [record(i, kl=0.3, entropy=1.0, truncated=0.1) for i in range(8)]
    away = [record(8 + i, **{"kl": 0.3, "entropy": 1.0, "truncated": 0.1, name: value}) for i in range(6)]
    step, said = run(watch, began + away)
    assert 8 < step < 14
    assert reason in said
    assert watch.collapsed


def test_a_kl_that_starts_high_and_falls_is_no_collapse() -> None:
    falling = [record(i, kl=3.0 / (i + 1), entropy=1.0, truncated=0.0) for i in range(40)]
    assert run(Watch(LIMITS), falling) == (-1, "")


def test_notes_that_were_restored_decide_as_if_there_had_been_no_break() -> None:
    whole, first = (Watch(LIMITS.model_copy(update={"max_flops": 95.0})) for _ in range(2))
    records = [record(i) for i in range(20)]
    for each in records[:5]:
        first.after(each, 20)
    second = Watch(LIMITS.model_copy(update={"max_flops": 95.0}))
    second.restore(first.as_dict())
    assert run(second, records[5:]) == run(whole, records)
