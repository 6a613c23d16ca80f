"""Other places that may be told what a run says, where somebody wants that: the record is kept in any case."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recovery.errors import RecoverError

Log = Callable[[Mapping[str, float | None], int], None]
SINKS = ("none", "wandb", "trackio", "tensorboard")


@contextmanager
def sink(name: str, home: Path, project: str, run: str, settings: Mapping[str, Any]) -> Iterator[Log]:
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
    else:  # trackio took over wandb's names
        module = _import(name, name)
        module.init(project=project, name=run, config=dict(settings))
        try:
            yield lambda values, step: module.log({k: v for k, v in values.items() if v is not None}, step=step)
        finally:
            module.finish()


def check_sink(name: str) -> None:
    if name not in SINKS:
        raise RecoverError(f"nothing can be reported to {name!r}; choose one of {', '.join(SINKS)}")
    if name != "none":
        _import("torch.utils.tensorboard" if name == "tensorboard" else name, name)


def _import(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RecoverError(f"report_to is {name}, which is not installed: pip install {name}") from error
