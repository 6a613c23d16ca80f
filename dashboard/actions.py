"""What pages may do besides reading the record; they hide actions that the command line did not pass in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from db.tables import Decision, Study


class ActionError(Exception):
    """An action failed. The message says why and what to do."""


class ModelAnswer(NamedTuple):
    reference: str  # of the checkpoint
    text: str
    seconds: float
    instructions: Sequence[tuple[str, bool]] = ()  # each instruction of an evaluation's prompt: name, followed or not


Generate = Callable[[Sequence[int], str], list[ModelAnswer]]  # of checkpoints, to a prompt
Decide = Callable[[int, str, str, Decision], None]  # about a checkpoint: the user, the reason and the decision


class AddNote(Protocol):
    def __call__(self, text: str, user: str, *, cycle: int | None = None, checkpoint: int | None = None) -> None: ...


@dataclass(frozen=True)
class Actions:
    """Each action raises `ActionError` if it fails. `user` is the login name, empty without a login."""

    generate: Generate | None = None
    cancel: Callable[[int], None] | None = None
    decide: Decide | None = None
    add_note: AddNote | None = None
    shipped_studies: Callable[[], Sequence[Study]] = tuple  # where a project has none of its own
