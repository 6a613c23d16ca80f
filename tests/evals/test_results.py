import json
import math
from dataclasses import replace

import pytest

from evals.results import Item, Metric, Result, headlines
from recovery.errors import RecoverError


def result(task: str = "ifeval", suite: str = "behaviour", **metrics: Metric) -> Result:
    items = [Item("a", "Say hi.", "hi", True, {"strict": [True]}), Item("b", "Say ho.", "", False)]
    metrics = metrics or {"prompt_level_strict_acc": Metric.from_passes([True, False])}
    return Result(task, suite, "lab", metrics, items, {"max_new_tokens": 8}, 1.23456)


def test_the_json_has_the_documented_fields() -> None:
    row = result().to_json()
    assert list(row) == ["task", "suite", "data", "seconds", "cost", "settings", "metrics"]
    metric = row["metrics"]["prompt_level_strict_acc"]
    assert list(metric) == ["value", "n", "stderr", "ci95"]
    assert metric["value"] == 0.5
    assert metric["n"] == 2
    assert row["seconds"] == 1.235
    assert json.loads(json.dumps(row, allow_nan=False)) == row


def test_items_are_included_on_request() -> None:
    items = result().to_json(items=True)["items"]
    assert items[0] == {"key": "a", "prompt": "Say hi.", "answer": "hi", "passed": True, "verdicts": {"strict": [True]}}
    assert result().passed_by_key() == {"a": True, "b": False}


def test_nan_and_infinity_are_null() -> None:
    row = result(answer_logprob=Metric.from_values([-math.inf])).to_json()
    assert row["metrics"]["answer_logprob"] == {"value": None, "n": 1, "stderr": None, "ci95": [None, None]}
    json.dumps(row, allow_nan=False)


def test_the_standard_error_of_a_mean() -> None:
    metric = Metric.from_values([0.0, 1.0, 0.0, 1.0])
    assert metric.value == 0.5
    assert metric.stderr == pytest.approx(math.sqrt(1 / 3 / 4))


def test_instructions_of_one_prompt_are_not_independent() -> None:
    grouped = Metric.from_groups([[True] * 3, [False] * 3] * 10)
    independent = Metric.from_passes([True, False] * 30)
    assert grouped.value == independent.value == 0.5
    assert grouped.n == 60
    assert grouped.stderr == pytest.approx(independent.stderr * math.sqrt(3 * 20 / 19))
    assert grouped.ci95[0] < independent.ci95[0]


def test_groups_of_one_are_plain_passes() -> None:
    passes = [True] * 30 + [False] * 10
    grouped, plain = Metric.from_groups([[p] for p in passes]), Metric.from_passes(passes)
    assert grouped.value == plain.value
    assert grouped.ci95 == pytest.approx(plain.ci95, abs=0.005)


@pytest.mark.parametrize("constructor", [Metric.from_passes, Metric.from_groups, Metric.from_values])
def test_a_metric_needs_items(constructor: object) -> None:
    with pytest.raises(RecoverError, match="no items"):
        constructor([])  # type: ignore[operator]


def test_headlines_prefer_the_headline_task_and_are_none_if_not_measured() -> None:
    own = result("own", "behaviour", match=Metric.from_passes([True]))
    ifeval = result("ifeval", f1=Metric.from_passes([True]), prompt_level_strict_acc=Metric.from_passes([False]))
    values = {"behaviour": 0.0, "knowledge": None, "earlier": None, "retention": None}
    assert headlines([own, ifeval]) == values
    assert headlines([own])["behaviour"] == 1.0
    lower = {"lower_is_better": True}
    bits = Result("passages", "knowledge", "d", {"bits_per_byte": Metric.from_values([1.5])}, [], lower, 0.0)
    assert headlines([bits])["knowledge"] is None


def test_what_the_model_knew_before_is_pooled_over_tasks_that_pass_or_fail() -> None:
    half = result("own_world", "retention", match=Metric.from_passes([True, False]))
    items = [Item(str(i), "", "", True) for i in range(6)]
    all_right = Result("arithmetic", "retention", "lab", {"match": Metric.from_passes([True] * 6)}, items, {}, 0.0)
    graded = Result("squad", "retention", "lab", {"f1": Metric.from_values([0.3, 0.4])}, items[:2], {}, 0.0)
    assert headlines([half, all_right])["retention"] == headlines([graded, half, all_right])["retention"] == 7 / 8
    assert headlines([graded])["retention"] == pytest.approx(0.35)
    cycles = [replace(r, suite="earlier", task=f"cycle:{n}") for n, r in enumerate([half, all_right], start=1)]
    assert headlines(cycles)["earlier"] == 7 / 8


def test_a_pass_rate_is_the_share_of_items_that_passed() -> None:
    items = [Item(str(i), "", "", i < 3) for i in range(4)]

    def result_with(value: float) -> Result:
        return Result("t", "behaviour", "d", {"m": Metric(value, 4, math.nan, (math.nan, math.nan))}, items, {}, 0.0)

    assert result_with(0.75).is_pass_rate
    assert not any(result_with(value).is_pass_rate for value in (0.7501, 0.0, math.nan))
