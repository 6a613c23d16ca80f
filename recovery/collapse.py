"""Signs that a distillation runs away from its teacher, although its KL may fall.

watch = CollapseWatch(CleanReplies.of(teacher_engine.generate(prompts, Sampling(max_new_tokens))))
for record in train(...):
    if reason := watch.after_step(record):
        break
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Self

from recovery.engines import Generation
from recovery.telemetry import StepRecord, repetition

DEVIATIONS = 3.5  # of chance, by which a share of the rollouts exceeds that of the clean model's replies
ROLLOUTS = 48  # at least, from which that is told
ENTROPY_FACTOR = 1.5  # by which the student's entropy exceeds the clean model's


@dataclass(frozen=True)
class CleanReplies:
    """What the replies of the clean model are like, to prompts of the rollouts and with the same limit of tokens."""

    count: int
    truncated: float
    repetition: float
    entropy: float  # nats a token

    @classmethod
    def of(cls, replies: Sequence[Generation]) -> Self:
        """Of replies at temperature 1, with their log-probs: their mean is the entropy, but for the sign."""
        logprobs = [value for reply in replies for value in reply.logprobs]
        return cls(
            count=len(replies),
            truncated=fmean(not reply.finished for reply in replies),
            repetition=fmean(repetition(reply.tokens) for reply in replies),
            entropy=-fmean(logprobs),
        )


@dataclass(frozen=True)
class Sign:
    metric: str
    reason: str
    factor: float  # the mean of the last steps is above the mean of the first by this factor,
    threshold: float  # and above this value
    steps: int = 5  # in each mean


SIGNS = (
    Sign("kl", "the KL to the teacher doubled instead of falling", 2.0, 0.5),
    Sign("entropy", "the student's entropy doubled", 2.0, 1.0),
    Sign("repetition", "the rollouts repeat themselves", 2.0, 0.3, steps=3),
    Sign("truncated", "most rollouts no longer end", 1.5, 0.5, steps=3),
)
METRICS = ("rollouts", *(sign.metric for sign in SIGNS))
OF_ROLLOUTS = ("rollouts", "repetition", "truncated")


@dataclass
class CollapseWatch:
    """Ends a run that moves away from where it began and is beyond the clean model, which it should come back to.

    A student that has lost long replies is cut more and more often as it recovers. So the entropy, the repetition and
    the share of truncated rollouts are compared with the clean model's replies, too, and only the KL with the first
    steps alone. Without `clean` all are compared with the first steps alone: use that where no clean model is at hand
    (a teacher on a server, a student that teaches itself, a reward), or where the student's replies begin as long as
    the clean model's.

    With its fields saved, a resumed run decides as an unbroken one."""

    clean: CleanReplies | None = None
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in METRICS})

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Self:
        return cls(saved["clean"] and CleanReplies(**saved["clean"]), saved["history"])

    def after_step(self, record: StepRecord) -> str:
        """Return the first sign that shows, as part of a sentence; empty if none does."""
        known = {metric: value for metric in self.history if (value := getattr(record, metric)) is not None}
        if not all(map(math.isfinite, known.values())):
            return ""  # a step that was skipped: a mean with it would be no number for the rest of the run
        for metric, value in known.items():
            if metric not in OF_ROLLOUTS or record.rollout_seconds:  # further epochs are of the same rollouts
                self.history[metric].append(value)
        return next((self._reason(sign) for sign in SIGNS if self._shows(sign)), "")

    def _shows(self, sign: Sign) -> bool:
        if len(self.history[sign.metric]) < 2 * sign.steps:
            return False
        first, last = self._means(sign.metric, sign.steps)
        return last > sign.threshold and last > sign.factor * first and self._is_beyond_clean(sign, last)

    def _is_beyond_clean(self, sign: Sign, last: float) -> bool:
        clean = self._of_clean(sign)
        if sign.metric == "entropy":
            # A student that knows its documents by heart has a low entropy, which rises again as it nears its teacher.
            if clean is not None:
                return last > ENTROPY_FACTOR * clean
            first_kl, last_kl = self._means("kl", sign.steps) if self.history["kl"] else (0.0, 0.0)
            return not last_kl < first_kl
        if self.clean is None or clean is None:
            return True
        rollouts = self.history["rollouts"]
        steps = max(sign.steps, math.ceil(ROLLOUTS / rollouts[-1]))
        share = fmean(self.history[sign.metric][-steps:])
        return _is_larger(share, sum(rollouts[-steps:]), clean, self.clean.count)

    def _of_clean(self, sign: Sign) -> float | None:
        return None if sign.metric == "kl" else getattr(self.clean, sign.metric, None)

    def _reason(self, sign: Sign) -> str:
        clean, (_, last) = self._of_clean(sign), self._means(sign.metric, sign.steps)
        return sign.reason if clean is None else f"{sign.reason} ({last:.2f}, of the clean model {clean:.2f})"

    def _means(self, metric: str, steps: int) -> tuple[float, float]:
        values = self.history[metric]
        return fmean(values[:steps]), fmean(values[-steps:])


def _is_larger(share: float, count: float, clean: float, clean_count: int) -> bool:
    """Whether a share is above another by more than chance: means of values from 0 to 1 vary at most as shares do."""
    pooled = (share * count + clean * clean_count) / (count + clean_count)
    return share - clean > DEVIATIONS * math.sqrt(pooled * (1 - pooled) * (1 / count + 1 / clean_count))
