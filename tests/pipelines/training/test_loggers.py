from pathlib import Path

import pytest

from pipelines.training.loggers import check_sink, sink
from recovery.errors import RecoverError


def test_tensorboard_is_told_what_the_record_is_told(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    check_sink("tensorboard")
    with sink("tensorboard", tmp_path, "project", "run-0001", {}) as log:
        log({"loss": 2.5, "kl": None}, 0)
        log({"loss": 1.5}, 1)
    seen = EventAccumulator(str(tmp_path / "tensorboard" / "run-0001")).Reload()
    assert seen.Tags()["scalars"] == ["loss"]
    assert [(event.step, event.value) for event in seen.Scalars("loss")] == [(0, 2.5), (1, 1.5)]


def test_a_sink_that_is_not_there_is_told_before_anything_is_computed() -> None:
    with pytest.raises(RecoverError, match="choose one of none, wandb, trackio, tensorboard"):
        check_sink("paper")
    with pytest.raises(RecoverError, match="pip install wandb"):
        check_sink("wandb")
