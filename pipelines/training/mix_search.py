"""Search for the share of the base's answers in the mix (`midtrain.mix.answers = "auto"`).

A few short mid-trainings, each probed; the smallest share that does as well as any of them is taken. What a short one
says about a whole one is in docs/log.md. Every probe is cached, so an interruption costs at most one.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Self

from pipelines.log import log
from pipelines.storage.content_cache import ContentCache
from pipelines.training.probe_results import ProbeScores, Score

SHARES = (0.0, 0.1, 0.3)
STEP_FRACTION, MAX_STEPS = 4, 100  # a trial takes a quarter of the steps of the whole, at most so many
SIGNIFICANT = 1.645  # standard errors of a difference: one-sided, 95 %


@dataclass(frozen=True)
class AnswersSearch:
    """The share that was chosen, and the scores that it was chosen by."""

    share: float
    tried: dict[str, dict[str, float | None]]
    steps: int | None = None  # of each trial

    def as_json(self) -> dict[str, Any]:
        return ({"steps": self.steps} if self.steps else {}) | {"share": self.share, "tried": self.tried}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        return cls(**values)


def trial_steps(steps: int) -> int:
    return min(max(1, math.ceil(steps / STEP_FRACTION)), MAX_STEPS)


def describe_search() -> str:
    """What will be tried, before the number of steps is known."""
    shares = ", ".join(f"{share:g}" for share in SHARES)
    length = f"each for 1/{STEP_FRACTION} of the mid-training's steps (at most {MAX_STEPS})"
    return f"tries {shares}, {length}, and takes one of them, if there are enough questions"


def search_share(
    trial: Callable[[float], ProbeScores], cache: ContentCache, inputs: list[Any], steps: int
) -> AnswersSearch:
    """`inputs` is everything that a trial's result depends on, besides its share."""
    scores = {share: _cached_trial(trial, share, cache, inputs) for share in SHARES}
    share = best_share(scores)
    log.info(f"Share of answers: {share:g}, {explain(scores, share)}")
    return AnswersSearch(share, {f"{share:g}": score.values for share, score in scores.items()}, steps)


def best_share(scores: Mapping[float, ProbeScores]) -> float:
    """The smallest share whose behaviour is within one standard error of the best.

    Shares that learned significantly less of the documents than the best are left out."""
    candidates = {share: score for share, score in scores.items() if not _learned_less(score, scores)}
    best = _best_behaviour(candidates)
    return min(share for share, score in candidates.items() if score.behaviour.value >= best.value - best.stderr)


def explain(scores: Mapping[float, ProbeScores], share: float) -> str:
    left_out = [share for share, score in scores.items() if _learned_less(score, scores)]
    best = _best_behaviour({share: score for share, score in scores.items() if share not in left_out})
    reason = f"the smallest share whose behaviour ({scores[share].behaviour.value:.3f}) is within one standard error"
    reason += f" ({best.stderr:.3f}) of the best ({best.value:.3f})"
    names = " and ".join(f"{share:g}" for share in left_out)
    return reason + (f"; {names} learned less of the documents" if left_out else "")


def _cached_trial(
    trial: Callable[[float], ProbeScores], share: float, cache: ContentCache, inputs: list[Any]
) -> ProbeScores:
    key = [version("recover"), share, *inputs]
    is_cached = cache.path("replay-probe", key).is_file()

    def timed_trial() -> dict[str, Any]:
        start = time.perf_counter()
        return asdict(trial(share)) | {"seconds": time.perf_counter() - start}

    scores = ProbeScores.from_json(cache.get_or_write("replay-probe", key, timed_trial))
    knowledge = f" · knowledge {scores.knowledge.value:.3f}" if scores.knowledge else ""
    cost = "cached" if is_cached else f"{scores.seconds:.0f} s"
    log.info(f"  answers {share:g}: behaviour {scores.behaviour.value:.3f}{knowledge} ({cost})")
    return scores


def _best_behaviour(scores: Mapping[float, ProbeScores]) -> Score:
    return max((score.behaviour for score in scores.values()), key=lambda score: score.value)


def _learned_less(scores: ProbeScores, others: Mapping[float, ProbeScores]) -> bool:
    knowledge = [other.knowledge for other in others.values() if other.knowledge is not None]
    if scores.knowledge is None or not knowledge:
        return False
    best = max(knowledge, key=lambda score: score.value)
    return best.value - scores.knowledge.value > SIGNIFICANT * math.hypot(best.stderr, scores.knowledge.stderr)
