"""What the read side hands out: plain, frozen values that outlive the connection they came from."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from db.run_inputs import RunInputs


@dataclass(frozen=True)
class Project:
    id: int
    name: str
    root: str
    base: str
    created_at: datetime


@dataclass(frozen=True)
class Checkpoint:
    id: int
    project_id: int
    cycle: int | None
    """The cycle's number in its project."""
    run_id: int | None
    parent_id: int | None
    role: str
    kind: str
    path: str
    hash: str | None
    bytes: int | None
    step: int | None
    created_at: datetime

    @property
    def reference(self) -> str:
        """How a person would name it on the command line."""
        if self.role in ("midtrained", "recovered"):
            return f"cycle:{self.cycle}/{self.role}" if self.cycle is not None else f"run:{self.run_id}"
        return "base" if self.role == "base" else self.path


@dataclass(frozen=True)
class Score:
    value: float | None
    n: int
    stderr: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Headline(Score):
    """A score that speaks for its suite, and what it is a score of."""

    task: str
    metric: str


@dataclass(frozen=True)
class Stage:
    """A checkpoint and its headline scores by suite; a suite that was not measured is missing."""

    checkpoint: Checkpoint | None = None
    scores: dict[str, Headline] = field(default_factory=dict)


@dataclass(frozen=True)
class Cycle:
    id: int
    number: int
    status: str
    corpus_id: int | None
    documents: str | None
    """The folder of its corpus."""
    verdict: dict[str, Any] | None
    opened_at: datetime
    closed_at: datetime | None
    clean: Stage
    damaged: Stage
    recovered: Stage

    @property
    def outcome(self) -> str:
        """How it stands. With too few items to tell nothing is promoted, which is not to have failed."""
        said = (self.verdict or {}).get("outcome")
        return "inconclusive" if self.status == "rejected" and said == "inconclusive" else self.status


@dataclass(frozen=True)
class SeriesPoint:
    """One mark on the overview chart."""

    at: datetime
    checkpoint_id: int
    role: str
    cycle: int | None
    suite: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    n: int


GIVEN_UP = "given up by recover cancel"


@dataclass(frozen=True)
class Run:
    id: int
    project_id: int
    cycle: int | None
    kind: str
    status: str
    settings: dict[str, Any]
    inputs: RunInputs
    seed: int
    host: str
    pid: int
    code_version: str
    started_at: datetime
    heartbeat_at: datetime
    finished_at: datetime | None
    error: str | None
    steps: int | None
    """How many are planned, where that is known."""
    cancel_requested_at: datetime | None

    @property
    def waits(self) -> bool:
        """Whether `recover resume` would go on with it, should it not be going on."""
        return self.status != "done" and not (self.error or "").startswith(GIVEN_UP)


@dataclass(frozen=True)
class Point:
    step: int
    name: str
    value: float
    """NaN when that is what was measured."""


@dataclass(frozen=True)
class Rollout:
    step: int
    position: int
    prompt: str
    text: str
    truncated: bool
    reward: float | None
    tokens: list[Any] | None
    """One entry a token, where they were recorded; `Tracker.rollouts` says what is in it."""


@dataclass(frozen=True)
class Resource:
    at: datetime
    values: dict[str, Any]


@dataclass(frozen=True)
class Evaluation:
    id: int
    checkpoint_id: int
    run_id: int | None
    suite: str
    task: str
    data: str
    settings: dict[str, Any]
    seconds: float
    at: datetime
    scores: dict[str, Score]


@dataclass(frozen=True)
class Document:
    position: int
    name: str
    hash: str
    bytes: int


@dataclass(frozen=True)
class Item:
    key: str
    prompt: str
    answer: str
    passed: bool | None
    verdicts: Any


@dataclass(frozen=True)
class Event:
    id: int
    run_id: int
    at: datetime
    level: str
    message: str


@dataclass(frozen=True)
class Promotion:
    id: int
    cycle: int | None
    checkpoint_id: int
    decision: str
    who: str
    why: str
    at: datetime


@dataclass(frozen=True)
class Note:
    id: int
    cycle: int | None
    """The cycle's number in its project."""
    checkpoint_id: int | None
    text: str
    who: str
    at: datetime
