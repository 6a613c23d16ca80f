"""The values that `Reader` returns: frozen dataclasses, independent of the database connection."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from db.run_inputs import RunInputs

GGUF_FOLDER = "gguf"  # in `.recover`; the model made from a file is in a folder with its name and the content's hash


@dataclass(frozen=True)
class Project:
    id: int
    name: str
    root: str
    base: str
    created_at: datetime

    @property
    def base_name(self) -> str:
        """The base as people know it: the GGUF file that it was made from, the last names of a folder, or a hub id."""
        name = name_of_base(self.base)
        return "/".join(Path(name).parts[-2:]) if Path(name).is_absolute() else name


def name_of_base(base: str) -> str:
    """The name of the GGUF file that the base was made from, else the folder or hub id."""
    path = Path(base)
    made_from = re.fullmatch(r"(.+)-[0-9a-f]{12}", path.name) if path.parent.name == GGUF_FOLDER else None
    return f"{made_from[1]}.gguf" if made_from else base


@dataclass(frozen=True)
class Checkpoint:
    id: int
    project_id: int
    cycle: int | None  # the cycle's number in its project
    run_id: int | None
    parent_id: int | None
    role: str
    kind: str
    path: str
    hash: str | None
    bytes: int | None
    step: int | None
    created_at: datetime
    verdict: dict[str, Any] | None = field(default=None, compare=False)  # of the gate
    deleted_at: datetime | None = field(default=None, compare=False)  # when its weights were deleted
    superseded: bool = field(default=False, compare=False)  # `cycle:N` names another attempt of its cycle
    of_probe: bool = field(default=False, compare=False)  # its run went on: it was kept for what its probe showed

    @property
    def reference(self) -> str:
        """How to name it on the command line."""
        if self.role in ("midtrained", "recovered"):
            of_run = self.cycle is None or (self.superseded and self.run_id is not None)
            if of_run and self.of_probe:
                return f"run:{self.run_id}/step:{self.step}"
            return f"run:{self.run_id}" if of_run else f"cycle:{self.cycle}/{self.role}"
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
    """The score that stands for a suite, with its task and metric."""

    task: str
    metric: str


@dataclass(frozen=True)
class Stage:
    """A checkpoint and its headline scores by suite; suites that were not measured are missing."""

    checkpoint: Checkpoint | None = None
    scores: dict[str, Headline] = field(default_factory=dict)


@dataclass(frozen=True)
class Cycle:
    id: int
    number: int
    status: str
    corpus_id: int | None
    documents: str | None  # the folder of its corpus
    verdict: dict[str, Any] | None
    opened_at: datetime
    closed_at: datetime | None
    clean: Stage
    damaged: Stage
    recovered: Stage
    decision_reason: str | None = None  # of the last decision

    @property
    def outcome(self) -> str:
        return outcome_of(self.status, self.decision_reason, self.verdict)


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
    steps: int | None  # how many are planned, if known
    cancel_requested_at: datetime | None
    stale: bool  # marked as running, but without a heartbeat: its process is gone

    @property
    def resumable(self) -> bool:
        """Whether `recover resume` can continue it, if it is not running."""
        return self.status != "done" and not (self.error or "").startswith(GIVEN_UP)


DONE, TOTAL = "progress/done", "progress/total"  # points of a measurement: items of the task that is measured now


@dataclass(frozen=True)
class Point:
    step: int
    name: str
    value: float  # may be NaN


@dataclass(frozen=True)
class Rollout:
    step: int
    position: int
    prompt: str
    text: str
    truncated: bool
    reward: float | None
    tokens: list[Any] | None  # one entry per token, where recorded; see `Tracker.rollouts`


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
    verdict: dict[str, Any] | None = None  # of the gate on the checkpoint

    @property
    def outcome(self) -> str:
        return outcome_of(self.decision, self.why, self.verdict)

    @property
    def against_gate(self) -> str:
        """What the decision was for people, where it overruled the gate."""
        return f"{self.decision} against the gate's verdict ({gate_outcome(self.verdict)})"


def gate_outcome(verdict: Mapping[str, Any] | None) -> str:
    """How the gate judged."""
    return str((verdict or {}).get("outcome", "failed"))


def overrules_gate(decision: str, verdict: Mapping[str, Any] | None) -> bool:
    """Whether a decision goes against the gate's verdict; never where there is none."""
    passed = (verdict or {}).get("passed")
    return isinstance(passed, bool) and passed != (decision == "promoted")


def promotion_against_gate(newest_first: Iterable[Promotion], checkpoint: int) -> Promotion | None:
    """The promotion that put a checkpoint into use against the gate, if one did.

    It is the first since the last rejection: a rollback to the checkpoint promotes it once more."""
    first = None
    for promotion in newest_first:
        if promotion.checkpoint_id == checkpoint and promotion.decision == "rejected":
            break
        first = promotion if promotion.checkpoint_id == checkpoint else first
    return first if first and overrules_gate(first.decision, first.verdict) else None


def outcome_of(decision: str, reason: str | None, verdict: Mapping[str, Any] | None) -> str:
    """The decision; "inconclusive" where the gate rejected because it had too few items to decide.

    The gate decides with the reason of its verdict; a decision with another reason is a person's."""
    verdict = verdict or {}
    inconclusive = verdict.get("outcome") == "inconclusive" and verdict.get("reason") == reason
    return "inconclusive" if decision == "rejected" and inconclusive else decision


def last_decisions(newest_first: Iterable[Promotion]) -> dict[int, str]:
    """The last decision on each checkpoint, by the checkpoint's id."""
    decisions: dict[int, str] = {}
    for promotion in newest_first:
        decisions.setdefault(promotion.checkpoint_id, promotion.decision)
    return decisions


@dataclass(frozen=True)
class Note:
    id: int
    cycle: int | None  # the cycle's number in its project
    checkpoint_id: int | None
    text: str
    who: str
    at: datetime


@dataclass(frozen=True)
class Study:
    id: int
    name: str
    size: str
    hash: str  # of the declaration
    declaration: dict[str, Any]
    results: dict[str, Any] | None  # arms, planned, claims
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None  # when it had its verdicts

    @property
    def claims(self) -> list[dict[str, Any]]:
        """The claims with their verdicts; without them while arms are missing."""
        return (self.results or {}).get("claims") or list(self.declaration["claims"])

    @property
    def arms(self) -> dict[str, list[dict[str, Any]]]:
        """What each arm came to on the seeds that are done."""
        by_arm: dict[str, list[dict[str, Any]]] = {}
        for entry in (self.results or {}).get("arms", []):
            by_arm.setdefault(entry["arm"], []).append(entry)
        return by_arm
