"""The arithmetic of the calibration, and a calibration of a tiny model."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.machine import calibration
from pipelines.machine.calibration import Pass, calibrate, chance_of_end, decoding_costs, line_through
from pipelines.settings.defaults import defaults_for
from pipelines.settings.schema import Settings
from recovery.lab import BASE
from recovery.losses.objectives import CrossEntropy
from recovery.models.students import load_student
from recovery.signals import Labels
from tests.models import save_tiny

costs = st.floats(1e-6, 1.0)


@given(fixed=costs, per_token=costs, few=st.integers(1, 100), more=st.integers(1, 1000))
def test_a_line_through_two_measurements(fixed: float, per_token: float, few: int, more: int) -> None:
    many = few + more
    line = line_through((few, fixed + few * per_token), (many, fixed + many * per_token))
    assert line.fixed == pytest.approx(fixed, rel=1e-3, abs=1e-7 * many)
    assert line.per_token == pytest.approx(per_token, rel=1e-3)


def test_no_cost_is_negative_where_a_measurement_was_disturbed() -> None:
    line = line_through((64, 2.0), (512, 1.0))
    assert (line.fixed, line.per_token) == (0.0, 1.0 / 512)
    per_pass, per_token = decoding_costs(Pass(8, 32, 0, 5.0), Pass(8, 256, 0, 1.0))
    assert (per_pass, per_token) == (0.0, 1.0 / 256)


@given(per_pass=costs, per_token=costs)
def test_the_costs_of_generation_follow_from_two_batches(per_pass: float, per_token: float) -> None:
    small = Pass(8, 32, 0, 8 * per_pass + 32 * per_token)
    large = Pass(8, 256, 0, 8 * per_pass + 256 * per_token)
    assert decoding_costs(small, large) == pytest.approx((per_pass, per_token), rel=1e-3, abs=1e-9)


def test_replies_that_were_not_seen_to_end_are_expected_to_be_long() -> None:
    assert 1 / chance_of_end(0, 0, 1280) == pytest.approx(320)
    assert 1 / chance_of_end(0, 256, 1280) > 320
    assert 1 / chance_of_end(1000, 20_000, 320) == pytest.approx(20, rel=0.02)


def test_a_model_is_calibrated_by_a_few_rows(tmp_path: Path) -> None:
    model = str(save_tiny(tmp_path / "model"))
    starts = {"reply": ([[5, 6, 7], [8, 9]], 16), "text": ([[5]], 16)}
    rates = calibrate(model, defaults_for(1000), "transformers", starts)
    values = rates.as_json()
    ends = values.pop("ends")
    assert set(ends) == {"reply", "text"}
    assert all(0 < end < 1 for end in ends.values())
    assert all(value >= 0 for value in values.values())
    assert rates.taught_token >= rates.label_token > 0
    assert rates.scored_token > 0
    slow = calibrate(model, defaults_for(1000), "vllm", starts)
    assert slow.open_engine > rates.open_engine == 0


def test_the_optimiser_s_own_time_is_not_counted_as_that_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that takes a second with no token at all: a large model on a small machine."""

    def seconds(*arguments: Any, steps: int) -> list[float]:
        return [1.0 + 0.002 * sum(arguments[-1])] * steps

    monkeypatch.setattr(calibration, "_step_seconds", seconds)
    line = calibration._step_line(load_student(str(BASE)), Settings(), Labels(), CrossEntropy())
    assert (line.fixed, line.per_token) == pytest.approx((1.0, 0.002))
