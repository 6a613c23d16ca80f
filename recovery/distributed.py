"""Several processes that train together, as torchrun starts them: the first leads, the others follow.

A single process, the usual case, is the leader of nobody: nothing is sent, and it takes every row. Behind the
connections are the tensors whose parts lie with several processes, those of the optimiser's state among them.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from recovery.errors import LostProcess, RecoverError

if TYPE_CHECKING:  # takes time to import, and a single process has no use for it
    from torch.distributed.tensor import DTensor

T = TypeVar("T")

# Followers wait while the leader measures, for hours: a lost process shows as a closed connection, not as a wait.
MAX_WAIT = timedelta(days=7)
SECONDS_TO_BE_ENDED = 5.0  # what started the processes ends those that are left, and says why
SECONDS_TO_RELEASE = 0.2  # for gloo's threads, which may still hold the last message when it has arrived
CLOSED = ("closed by peer", "reset by peer", "broken pipe", "socket closed", "remote process exited")

_together = False


def processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def size() -> int:
    """How many processes compute together now: one while the leader does something alone."""
    return processes() if _together else 1


def rank() -> int:
    return dist.get_rank() if processes() > 1 else 0


@contextmanager
def together() -> Iterator[None]:
    """All processes run the same code inside; a lost one is reported."""
    global _together
    _together = True
    try:
        with lost_processes_reported():
            yield
    finally:
        _together = False


def join() -> None:
    """Connect to the other processes: gloo on processors, nccl between GPUs, one GPU for each process."""
    local, here = (int(os.environ.get(name, default)) for name, default in (("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1)))
    backend = "gloo"
    if torch.cuda.is_available():
        if here > torch.cuda.device_count():
            raise RecoverError(
                f"There are {here} processes on this machine and {torch.cuda.device_count()} GPUs. "
                "Start one process for each GPU at most."
            )
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    count, number = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    dist.init_process_group(backend, os.environ.get("PROCESSES_MEET_AT"), MAX_WAIT, count, number)


def leave(in_order: bool = True) -> None:
    """Close the connections: a process that exits with open ones may be aborted.

    So may one whose interpreter is gone when a thread of gloo releases a tensor: those threads outlive the group.
    Between GPUs this waits for the others, which after an error may never come."""
    if processes() > 1 and (in_order or not torch.cuda.is_available()):
        dist.destroy_process_group()
        time.sleep(SECONDS_TO_RELEASE)


def broadcast(message: Any = None) -> Any:
    """Return the leader's message in every process."""
    messages = [message]
    with lost_processes_reported():
        dist.broadcast_object_list(messages, src=0, device=torch.device("cpu"))
    return messages[0]


def gather(value: T) -> list[T]:
    """Return the values of all processes to the leader, and nothing to the followers."""
    values: list[Any] | None = [None] * processes() if rank() == 0 else None
    with lost_processes_reported():
        dist.gather_object(value, values, dst=0)
    return values or []


def all_reduce_sum(value: float, device: torch.device) -> float:
    if size() == 1:
        return value
    summed = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(summed)
    return float(summed)


def own_rows(rows: Sequence[T]) -> list[T]:
    """Return the rows of a micro-batch that this process computes: none if there are fewer rows than processes."""
    return list(rows[rank() :: size()]) if size() > 1 else list(rows)


def whole(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor whose parts lie with several processes; gradients are summed over them."""
    if size() == 1 or not is_part(tensor):
        return tensor
    from torch.distributed.tensor import Partial

    return tensor.full_tensor(grad_placements=[Partial()])  # type: ignore[attr-defined]


def is_part(tensor: Any) -> bool:
    return hasattr(tensor, "full_tensor")


def as_parts(tensor: Tensor, like: "DTensor") -> "DTensor":
    """Cut a tensor that every process has whole as another one is cut."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


@contextmanager
def lost_processes_reported() -> Iterator[None]:
    """Turn the error of a broken connection into one sentence; it is said where nobody ends this process first."""
    try:
        yield
    except RuntimeError as error:
        if not any(text in str(error).lower() for text in CLOSED):
            raise
        if rank() == 0:
            time.sleep(SECONDS_TO_BE_ENDED)
        raise LostProcess(
            "Another training process was lost, so this one ends, too. Go on from the last saved state with "
            "`recover resume`."
        ) from error


def whole_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The state as a single process has it, in the leader's memory; the others only give their parts."""
    saved = optimizer.state_dict()
    states: dict[int, dict[str, Any]] = {}
    for i, state in sorted(saved["state"].items()):
        for name, value in state.items():
            gathered = whole(value)
            if rank() == 0:
                states.setdefault(i, {})[name] = gathered.cpu()
    return saved | {"state": states}


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load a whole state; each process keeps its parts."""
    parameters = optimizer.param_groups[0]["params"]
    states = {i: _as_parts(state, parameters[i]) for i, state in saved["state"].items()}
    optimizer.load_state_dict({**saved, "state": states})


def _as_parts(state: dict[str, Any], parameter: Any) -> dict[str, Any]:
    if not is_part(parameter):
        return state
    return {
        name: as_parts(value, parameter) if value.shape == parameter.shape else value for name, value in state.items()
    }
