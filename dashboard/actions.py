"""What the pages may do beyond looking. The command line hands it in; a page hides what it was not given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class ActionError(Exception):
    """It could not be done; the text says why and what to do."""


class Answer(NamedTuple):
    reference: str
    text: str
    seconds: float
    followed: Sequence[tuple[str, bool]] = ()
    """Each instruction of the prompt and whether the answer follows it, where the prompt's instructions are known."""


class Generate(Protocol):
    def __call__(self, checkpoints: Sequence[int], prompt: str) -> list[Answer]: ...


class TakeNote(Protocol):
    def __call__(self, text: str, who: str, *, cycle: int | None = None, checkpoint: int | None = None) -> None: ...


class Decide(Protocol):
    def __call__(self, checkpoint: int, who: str, why: str) -> None: ...


@dataclass(frozen=True)
class Actions:
    """Each raises `ActionError` when it cannot be done. `who` is the name given at the door, empty without a door."""

    generate: Generate | None = None
    cancel: Callable[[int], None] | None = None
    promote: Decide | None = None
    reject: Decide | None = None
    note: TakeNote | None = None
