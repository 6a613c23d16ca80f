"""References to checkpoints as users write them: `base`, `current`, `run:7`, `run:7/step:20`, `cycle:3`,
`cycle:3/midtrained`; anything else is a folder or a hub id."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.project.paths import absolute_if_exists
from recovery.errors import RecoverError
from recovery.models.gguf_dequantisation import names_gguf

Stage = Literal["midtrained", "recovered"]
PATTERN = re.compile(
    r"(?P<name>base|current)|run:(?P<run>\d+)(/step:(?P<step>\d+))?|cycle:(?P<cycle>\d+)(/(?P<stage>midtrained|recovered))?"
)


@dataclass(frozen=True)
class Reference:
    """A checkpoint of the project, by name or number."""

    kind: Literal["base", "current", "run", "cycle"]
    number: int = 0  # of the run or cycle
    stage: Stage = "recovered"  # of the cycle
    step: int | None = None  # of the run


def parse_reference(text: str) -> Reference | None:
    """The parts of a project reference; None for a folder or a hub id."""
    match = PATTERN.fullmatch(text)
    if match is None:
        return None
    if match["name"]:
        return Reference("base" if text == "base" else "current")
    if match["run"]:
        return Reference("run", int(match["run"]), step=int(match["step"]) if match["step"] else None)
    return Reference("cycle", int(match["cycle"]), "midtrained" if match["stage"] == "midtrained" else "recovered")


def is_model(reference: str) -> bool:
    """Whether this is a folder or a hub id, rather than a reference that only means something within a project."""
    return parse_reference(reference) is None


def model_path(reference: str) -> str:
    """The folder (absolute) or hub id of a model from outside the project."""
    path = absolute_if_exists(reference)
    if names_gguf(path):
        raise RecoverError(
            f"A GGUF file such as {reference} can only be the base (--base) of a project. Name a folder or a hub id."
        )
    if not Path(path).exists() and (path.startswith((".", "/", "~")) or path.count("/") != 1):
        raise RecoverError(
            f"There is no checkpoint {reference!r}. Name base, current, cycle:N, cycle:N/midtrained, run:N, "
            "run:N/step:M, an existing folder, or a hub id like org/name."
        )
    return path
