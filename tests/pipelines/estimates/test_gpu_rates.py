"""The assumed speed of GPUs, beside the one that was measured."""

from pathlib import Path

import pytest

from pipelines.estimates.gpu_rates import gpu_rates
from pipelines.machine.model_shape import ModelShape
from pipelines.settings.defaults import defaults_for
from tests.real_shapes import save_config

SEEN = 35_419  # tokens a second: mid-training the shape of Qwen3-0.6B on one H200 (docs/benchmarks.md)


@pytest.fixture
def small(tmp_path: Path) -> ModelShape:
    return ModelShape.of(save_config(tmp_path, "0.6b"))


def test_the_assumed_speed_is_below_what_an_h200_showed(small: ModelShape) -> None:
    rates = gpu_rates(small, defaults_for(small.parameters), 1, 16, 2048, None)
    assert 0.5 * SEEN < 1 / rates.label_token < SEEN


def test_a_speed_that_was_seen_is_that_of_a_token(small: ModelShape) -> None:
    settings = defaults_for(small.parameters)
    for checkpointing in (False, True):
        changed = settings.model_copy(update={"checkpointing": checkpointing})
        assert 1 / gpu_rates(small, changed, 1, 16, 2048, 5000.0).label_token == pytest.approx(5000)


def test_processes_share_rows_but_wait_for_the_weights(small: ModelShape) -> None:
    settings = defaults_for(small.parameters)
    one, four, five = (gpu_rates(small, settings, count, 8, 2048, None) for count in (1, 4, 5))
    assert one.label_token / 4 < four.label_token < one.label_token
    assert five.label_token == pytest.approx(four.label_token, rel=0.1)  # two rows at most, either way
    assert one.step == 0 < four.step
    assert one.decode_pass == four.decode_pass  # a token of a batch takes as long with fewer rows
