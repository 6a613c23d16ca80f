"""What a command was asked to do, kept until it is done: whoever picks it up needs nothing else.

An job is written once, before anything is computed, and never changed. What of it is done already is known from the
record alone: every run says which job it belongs to and which stage of it it is.
"""

import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from pipelines.files import write_atomic
from recovery.errors import RecoverError


@dataclass(frozen=True)
class Job:
    command: str  # midtrain, distill or cycle
    settings: dict[str, Any]
    seed: int
    start: int | None = None  # the checkpoint that is mid-trained
    student: int | None = None  # the checkpoint that is repaired, where none is made on the way
    teacher: int | None = None
    router: bool = False  # whether that teacher shares its work with the checkpoint that was last promoted
    corpus: str | None = None  # hash of the documents, kept under it
    documents: str | None = None  # where they were read
    files: int = 0
    prompts: str | None = None
    measures: dict[str, Any] = field(default_factory=dict)
    ask: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(4))

    def write(self, home: Path) -> Self:
        write_atomic(_path(home, self.id), [json.dumps(asdict(self), indent=1)])
        return self

    def done(self, home: Path) -> None:
        _path(home, self.id).unlink(missing_ok=True)


def unfinished(home: Path) -> list[Job]:
    """The oldest first."""
    files = sorted((home / "jobs").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return [_read(path) for path in files]


def _path(home: Path, id: str) -> Path:
    return home / "jobs" / f"{id}.json"


def _read(path: Path) -> Job:
    try:
        return Job(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise RecoverError(f"{path} cannot be read ({error}); delete it and run the command again") from error
