"""The optimiser's state, saved by all processes together, each its part, and loaded by any number of them."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from recovery.distributed import as_parts, is_part, size
from recovery.errors import RecoverError

FOLDER = "optimizer"  # beside the file that holds everything else of a training's state


def save_parts(optimizer: torch.optim.Optimizer, path: Path) -> None:
    # Imported here, since it takes time and a single process seldom needs it.
    from torch.distributed.checkpoint.state_dict_saver import save

    with _one_sentence("saved", path):
        save(_tensors(optimizer), checkpoint_id=path.with_name(FOLDER), no_dist=size() == 1)


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any], path: Path) -> None:
    """Load the state that one process saved whole, or, where it has no tensors, the parts beside `path`."""
    parameters = optimizer.param_groups[0]["params"]
    if "parts" not in saved:
        states = {i: _as_parts(state, parameters[i]) for i, state in saved["state"].items()}
        optimizer.load_state_dict({**saved, "state": states})
        return
    if not saved["parts"]:  # saved before the first step
        return
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    folder = path.with_name(FOLDER)
    saved_names = FileSystemReader(folder).read_metadata().state_dict_metadata
    for i, parameter in enumerate(parameters):
        if f"{i}.step" not in saved_names:  # it has never had a gradient
            continue
        moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        device = parameter.device if optimizer.param_groups[0]["fused"] else "cpu"
        optimizer.state[parameter] = {"step": torch.zeros((), device=device), **moments}
    with warnings.catch_warnings(), _one_sentence("loaded", path):
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process loads alone on purpose
        load(_tensors(optimizer), checkpoint_id=folder, no_dist=size() == 1)


@contextmanager
def _one_sentence(done: str, path: Path) -> Iterator[None]:
    """torch raises what no `except Exception` catches, with the errors of all processes."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as failure:
        reasons = [str(error).partition("\n")[0] for error, _ in failure.failures.values()]
        raise RecoverError(f"The optimizer's state could not be {done} in {path.parent}: {reasons[0]}") from failure


def _tensors(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    parameters = optimizer.param_groups[0]["params"]
    return {
        f"{i}.{name}": value
        for i, parameter in enumerate(parameters)
        for name, value in optimizer.state.get(parameter, {}).items()
    }


def _as_parts(state: dict[str, Any], parameter: Any) -> dict[str, Any]:
    if not is_part(parameter):
        return state
    return {
        name: as_parts(value, parameter) if value.shape == parameter.shape else value for name, value in state.items()
    }
