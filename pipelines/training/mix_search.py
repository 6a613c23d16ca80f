"""Which share of replay, where the tool is to find it: a few short mid-trainings, each looked at, and the least share
that does as well as any of them.

What a short one says of the whole is in docs/log.md. A probe is kept by all that decides it, so that an interruption
costs no more than the one it cut off.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from evals.results import Metric
from pipelines.files import write_atomic
from pipelines.log import log
from recovery.engines import Engine
from recovery.models.students import Student

SHARES = (0.0, 0.1, 0.3)
PART, MOST = 4, 100  # a probe takes one step in so many of the whole, and at most so many
SHOWN = 1.645  # standard errors of a difference that show it, one-sided, 95 % of the time


@dataclass(frozen=True)
class Score:
    value: float
    stderr: float

    @classmethod
    def of(cls, metric: Metric) -> "Score":
        return cls(metric.value, metric.stderr if math.isfinite(metric.stderr) else 0.0)


@dataclass(frozen=True)
class ProbeScores:
    """What a short mid-training came to, on the probe set."""

    behaviour: Score
    knowledge: Score | None
    seconds: float = 0.0

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "ProbeScores":
        known = said["knowledge"]
        return cls(Score(**said["behaviour"]), Score(**known) if known else None, said["seconds"])

    @property
    def scores(self) -> dict[str, float | None]:
        return {"behaviour": self.behaviour.value, "knowledge": self.knowledge.value if self.knowledge else None}


class ReadingProbe(Protocol):
    """Looks at a model that has read a little; its key tells what it asks."""

    def __call__(self, student: Student, engine: Engine) -> ProbeScores: ...
    def key(self, weights: str) -> list[str]: ...


def probe_steps(steps: int) -> int:
    return min(max(1, math.ceil(steps / PART)), MOST)


def describe_search() -> str:
    """What will be tried, where the number of steps is not known yet."""
    shares = ", ".join(f"{share:g}" for share in SHARES)
    some = f"each for 1/{PART} of the mid-training's steps (at most {MOST})"
    return f"tries {shares}, {some}, and takes one of them, if there are questions enough"


def best_share(tried: Mapping[float, ProbeScores]) -> float:
    """The least whose behaviour is within one standard error of the best, of those whose knowledge is not shown to be
    lower than the one's that knows most."""
    learned = {share: seen for share, seen in tried.items() if not _shown_to_know_less(seen, tried)}
    best = _best(learned)
    return min(s for s, seen in learned.items() if seen.behaviour.value >= best.value - best.stderr)


def why(tried: Mapping[float, ProbeScores], share: float) -> str:
    ignorant = [s for s, seen in tried.items() if _shown_to_know_less(seen, tried)]
    best = _best({s: seen for s, seen in tried.items() if s not in ignorant})
    taken = tried[share].behaviour.value
    said = f"the least share whose behaviour ({taken:.3f}) is within one standard error"
    said += f" ({best.stderr:.3f}) of the best ({best.value:.3f})"
    return said + (f"; {' and '.join(f'{s:g}' for s in ignorant)} learned less of the documents" if ignorant else "")


def search_share(try_out: Callable[[float], ProbeScores], folder: Path, decided_by: list[Any]) -> dict[str, Any]:
    """`{"share": …, "tried": {…}}`; `decided_by` is all that a probe's result depends on besides its share."""
    tried = {share: _kept(try_out, share, folder, decided_by) for share in SHARES}
    share = best_share(tried)
    log.info(f"replay: {share:g}, {why(tried, share)}")
    return {"share": share, "tried": {f"{s:g}": seen.scores for s, seen in tried.items()}}


def _kept(try_out: Callable[[float], ProbeScores], share: float, folder: Path, decided_by: list[Any]) -> ProbeScores:
    content = json.dumps([version("recover"), share, *decided_by], sort_keys=True)
    file = folder / f"replay-probe-{hashlib.sha256(content.encode()).hexdigest()[:16]}.json"
    before = file.is_file()
    if not before:
        began = time.perf_counter()
        seen = try_out(share)
        write_atomic(file, [json.dumps(asdict(seen) | {"seconds": time.perf_counter() - began})])
    seen = ProbeScores.from_json(json.loads(file.read_text(encoding="utf-8")))
    known = f" · knowledge {seen.knowledge.value:.3f}" if seen.knowledge else ""
    cost = "probed before" if before else f"{seen.seconds:.0f} s"
    log.info(f"  replay {share:g}: behaviour {seen.behaviour.value:.3f}{known} ({cost})")
    return seen


def _best(tried: Mapping[float, ProbeScores]) -> Score:
    return max((seen.behaviour for seen in tried.values()), key=lambda score: score.value)


def _shown_to_know_less(seen: ProbeScores, tried: Mapping[float, ProbeScores]) -> bool:
    known = [each.knowledge for each in tried.values() if each.knowledge is not None]
    if seen.knowledge is None or not known:
        return False
    most = max(known, key=lambda score: score.value)
    return most.value - seen.knowledge.value > SHOWN * math.hypot(most.stderr, seen.knowledge.stderr)
