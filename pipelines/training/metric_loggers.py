"""Metric loggers beside the record: wandb, trackio or TensorBoard, if `report_to` names one."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recovery.errors import RecoverError

MetricLogger = Callable[[Mapping[str, float | None], int], None]
LOGGERS = ("none", "wandb", "trackio", "tensorboard")


@contextmanager
def metric_logger(name: str, home: Path, project: str, run: str, settings: Mapping[str, Any]) -> Iterator[MetricLogger]:
    if name == "none":
        yield lambda values, step: None
    elif name == "tensorboard":
        writer = _import("torch.utils.tensorboard", name).SummaryWriter(str(home / "tensorboard" / run))

        def add(values: Mapping[str, float | None], step: int) -> None:
            for key, value in values.items():
                if value is not None:
                    writer.add_scalar(key, value, step)

        try:
            yield add
        finally:
            writer.close()
    else:  # trackio has wandb's interface
        module = _import(name, name)
        module.init(project=project, name=run, config=dict(settings))
        try:
            yield lambda values, step: module.log({k: v for k, v in values.items() if v is not None}, step=step)
        finally:
            module.finish()


def check_logger(name: str) -> None:
    if name not in LOGGERS:
        raise RecoverError(f"There is no logger {name!r} to report to. Choose one of {', '.join(LOGGERS)}.")
    if name != "none":
        _import("torch.utils.tensorboard" if name == "tensorboard" else name, name)


def _import(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RecoverError(
            f"The logger {name} (report_to) is not installed. Install it with `pip install {name}`."
        ) from error
