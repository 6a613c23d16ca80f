"""How far a job is: which stage it is in, how long that took so far, and how long the rest will take.

Stages are timed one within the other: what the base writes in the middle of mid-training is a stage of its own, and
its time does not count for mid-training. Whoever wants to show the progress passes `publish`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pipelines.log import log
from pipelines.progress import STEPS, duration
from recovery.progress import Update

PUBLISH_SECONDS = 5.0  # between two reports of progress
LEARN_SECONDS = 5.0  # a stage that took less corrects no estimate
CORRECTION_LIMITS = 0.2, 5.0


@dataclass(frozen=True)
class StageEstimate:
    key: str  # such as "measure/clean"
    name: str  # for people
    seconds: float

    @property
    def family(self) -> str:
        return family_of(self.key)


@dataclass(frozen=True)
class Progress:
    """What is published: the current stage, how far it is, and how long all will take from now on."""

    stage: str
    units: str
    done: int
    total: int
    seconds_left: float


@dataclass
class _Running:
    key: str
    name: str
    seconds: float = 0.0  # without those of stages within it
    resumed_at: float = 0.0
    units: str = ""
    done: int = 0
    total: int = 0
    units_began_at: float = 0.0
    done_before: int = 0  # by the run that was interrupted

    def elapsed(self) -> float:
        return self.seconds + time.monotonic() - self.resumed_at


Publish = Callable[[Progress, int | None], None]  # takes the run in the record too, if there is one
Finished = Callable[[str, float], None]  # takes the key of a stage and its seconds


def _ignore(*_: object) -> None:
    pass


@dataclass
class StageClock:
    """Times the stages of one job against their estimates."""

    estimates: Sequence[StageEstimate] = ()
    publish: Publish = _ignore
    finished: Finished = _ignore
    run: int | None = None  # the run in the record that is being computed
    took: dict[str, float] = field(default_factory=dict)
    incomplete: set[str] = field(default_factory=set)  # stages that ended early: they say nothing about others

    def __post_init__(self) -> None:
        self._planned = tuple(self.estimates)  # as they were before the first stage
        self._running: list[_Running] = []
        self._last_publication = 0.0

    @contextmanager
    def stage(self, key: str) -> Iterator[None]:
        """The time until the end belongs to this stage; log how long is left."""
        now = time.monotonic()
        if self._running:
            self._running[-1].seconds = self._running[-1].elapsed()
        estimate = self._estimate(key)
        self._running.append(_Running(key, estimate.name if estimate else "", resumed_at=now))
        if estimate:
            left = f"About {duration(self.seconds_left())} left"
            log.info(f"{left}: {estimate.name}, about {duration(estimate.seconds)}")
            self._publish(force=True)
        try:
            yield
        except BaseException:
            self._running.pop()
            raise
        ended = self._running.pop()
        self.took[key] = self.took.get(key, 0.0) + ended.elapsed()
        if self._running:
            self._running[-1].resumed_at = time.monotonic()
        self._after(key)

    def end_early(self, key: str) -> None:
        """Note that a stage ended before all its work was done."""
        self.incomplete.add(key)

    def listener(self, units: str, total: int) -> Update:
        """A listener for `recovery.progress`."""
        current = self._running[-1] if self._running else None
        if current is None or (current.units == STEPS and units != STEPS):
            return _ignore
        current.units, current.total, current.done, current.done_before = units, total, 0, 0
        current.units_began_at = time.monotonic()

        def update(done: int) -> None:
            if not current.done and units == STEPS:
                current.done_before = done - 1
            current.done = done
            self._publish()

        return update

    def describe(self) -> str:
        """What is going on, such as "  mid-training: 3 min so far, about 12 min left in all"."""
        if not self._running or not self._running[-1].name:
            return "  still working"
        current = self._running[-1]
        left = duration(self.seconds_left())
        return f"  {current.name}: {duration(current.elapsed())} so far, about {left} left in all"

    def seconds_left(self) -> float:
        return self._stage_left() + self.seconds_after()

    def seconds_after(self) -> float:
        """Of the stages after the current ones."""
        started = {running.key for running in self._running} | set(self.took)
        return sum(estimate.seconds for estimate in self.estimates if estimate.key not in started)

    def stage_estimate(self) -> dict[str, float] | None:
        """For the record of a run: the seconds estimated of the current stage, and of those after it."""
        estimate = self._estimate(self._running[-1].key) if self._running else None
        if estimate is None:
            return None
        return {"seconds": round(estimate.seconds, 1), "after": round(self.seconds_after(), 1)}

    def summary(self) -> dict[str, Any] | None:
        """Estimated and real seconds of the whole and of each stage; None without an estimate."""
        if not self._planned:
            return None
        planned = {estimate.key: estimate for estimate in self._planned}
        rows = [
            {
                "stage": estimate.name,
                "seconds": round(estimate.seconds, 1),
                "took": round(self.took.get(estimate.key, 0.0), 1),
                "complete": estimate.key in self.took and estimate.key not in self.incomplete,
            }
            for estimate in planned.values()
        ]
        total = sum(estimate.seconds for estimate in self._planned)
        return {"seconds": round(total, 1), "took": round(sum(self.took.values()), 1), "stages": rows}

    def _stage_left(self) -> float:
        left = 0.0
        for running in self._running:
            estimate = self._estimate(running.key)
            if estimate is None:
                continue
            if running is not self._running[-1]:
                left += max(estimate.seconds - running.seconds, 0.0)
            elif running.units == STEPS and running.done:  # its own speed says more than any estimate
                left += _by_rate(running)
            else:  # more may follow than what it computes just now
                left += max(estimate.seconds - running.elapsed(), 0.0, _by_rate(running))
        return left

    def _estimate(self, key: str) -> StageEstimate | None:
        return next((estimate for estimate in self.estimates if estimate.key == key), None)

    def _after(self, key: str) -> None:
        """Stages planned before one that ended are over too: their results were stored. Correct the others."""
        index = next((i for i, estimate in enumerate(self.estimates) if estimate.key == key), None)
        if index is None:
            return
        if not self._running:
            ended, rest = self.estimates[: index + 1], self.estimates[index + 1 :]
            self.estimates = [e for e in ended if e.key in self.took] + list(rest)
        took, estimate = self.took[key], self._estimate(key)
        assert estimate is not None
        if key in self.incomplete or took < LEARN_SECONDS or not estimate.seconds:
            return
        self.finished(key, took)
        ratio = correction(took, estimate.seconds)
        family = estimate.family
        self.estimates = [
            replace(e, seconds=ratio * e.seconds) if e.family == family and e.key not in self.took else e
            for e in self.estimates
        ]

    def _publish(self, force: bool = False) -> None:
        now = time.monotonic()
        if not self._running or not (force or now - self._last_publication >= PUBLISH_SECONDS):
            return
        self._last_publication, current = now, self._running[-1]
        progress = Progress(current.name, current.units, current.done, current.total, self.seconds_left())
        self.publish(progress, self.run)


def family_of(key: str) -> str:
    """Stages that do the same work: one that took longer than estimated says so of the others.

    All measurements do. What the base writes does not: texts, prompts and answers differ in length."""
    return "measure" if key.startswith("measure/") else key


def correction(took: float, estimated: float) -> float:
    """The factor by which similar stages are expected to differ from their estimates too."""
    low, high = CORRECTION_LIMITS
    return min(max(took / estimated, low), high)


def _by_rate(running: _Running) -> float:
    """Seconds left of what the stage computes just now, by its speed so far."""
    seconds = time.monotonic() - running.units_began_at
    done = running.done - running.done_before
    return seconds / done * (running.total - running.done) if done else 0.0
