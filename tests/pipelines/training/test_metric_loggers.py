"""Metric loggers: what they receive, and how a missing one is reported."""

from pathlib import Path

import pytest

from pipelines.training.training_run import check_logger, metric_logger
from recovery.errors import RecoverError


def test_tensorboard_receives_the_metrics_of_the_record(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    check_logger("tensorboard")
    with metric_logger("tensorboard", tmp_path, "project", "run-0001", {}) as log_metrics:
        log_metrics({"loss": 2.5, "kl": None}, 0)
        log_metrics({"loss": 1.5}, 1)
    events = EventAccumulator(str(tmp_path / "tensorboard" / "run-0001")).Reload()
    assert events.Tags()["scalars"] == ["loss"]
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(0, 2.5), (1, 1.5)]


def test_an_unknown_or_missing_logger_is_reported_before_training() -> None:
    with pytest.raises(RecoverError, match="Choose one of none, wandb, trackio, tensorboard"):
        check_logger("paper")
    with pytest.raises(RecoverError, match=r"Install it with `pip install wandb`\."):
        check_logger("wandb")
