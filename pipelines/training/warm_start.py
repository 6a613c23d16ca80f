"""The move that costs nothing: some of the way back in weights, before the first step of a distillation.

Where nothing at all is lost on the probe set, as it is or after this move, there is nothing to distil: distilling a
healthy model only costs it knowledge. This move itself is then made for the sake of what earlier cycles taught alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.log import log
from pipelines.settings import USUAL_SHARE, Settings, warm_share
from pipelines.training.early_stopping import Probe
from recovery.models.interpolation import WeightInterpolation

if TYPE_CHECKING:
    from pipelines.training.run import TrainingRun

SHARES = (0.3, 0.5, 0.7)


NOTHING = "nothing is lost on the probe set, so there is nothing to bring back"


@dataclass(frozen=True)
class WarmStartPlan:
    """The usual one, of this model."""

    began: Callable[[], str] | None  # what lies at its end, where that is on record: under an adapter, what it sits on
    share: float = USUAL_SHARE
    nowhere: bool = False  # of an adapter that is new
    anyway: bool = False  # even where no behaviour was lost: what earlier cycles taught, no look asks for


def warm_start(lesson: "TrainingRun", settings: Settings, back: WarmStartPlan, base: str) -> str:
    """Leaves the student where distillation begins; says why none is needed, where that is so.

    The way back leads to the weights that its mid-training began with; to the base, if that is not on record."""
    wanted, watch = settings.distill, lesson.watch
    usual = wanted.warm_start == "usual"
    chosen = back.share if usual else warm_share(settings)
    if back.nowhere and not usual and wanted.warm_start != "off":
        log.info("a new adapter has come no way, so there is none back in weights (--warm-start)")
    stays = wanted.warm_start == "off" or back.nowhere or (usual and (back.began is None or chosen == 0))
    first = seen = _look(lesson, 0.0)
    healthy = first is not None and _nothing_lost(first)
    if stays or (healthy and not (usual and back.anyway)):
        return NOTHING if healthy else ""
    line = WeightInterpolation(lesson.student, back.began() if back.began else base)
    if wanted.warm_start == "auto":
        if first is None:
            log.info("no probe set to choose a warm start by (see distill.probe_every); starting as it is")
            return ""
        tried: dict[float, Probe] = {0.0: first}
        for share in SHARES:
            line.move_to(share)
            tried[share] = _seen(lesson, share)
        # Of the knowledge that may be lost, half is left for the distillation to lose.
        limit = (1 + settings.gate.keep_knowledge) / 2 * (watch.notes.best_knowledge or 0.0)
        chosen = min(tried, key=lambda share: (_missing(tried[share], tried, limit), share))
        seen = tried[chosen]
        watch.notes.warm = {"tried": {str(share): _scores(probe) for share, probe in tried.items()}}
    line.move_to(chosen)
    if wanted.warm_start != "auto":
        seen = _look(lesson, chosen)
    if healthy and seen is not None and not seen.holds:
        line.move_to(0.0)
        log.info(f"{chosen:g} of the way back in weights cost more than it may; the model stays as it was")
        watch.notes.warm = {"share": 0.0}
        return NOTHING
    watch.notes.warm = {**(watch.notes.warm or {}), "share": chosen}
    log.info(f"warm start: {chosen:g} of the way back in weights")
    enough = seen is not None and (healthy or _nothing_lost(seen))
    return "the first move in weights was enough" if chosen and enough else ""


def _nothing_lost(probe: Probe) -> bool:
    """One look decides here, so it must be better than one of several on the way."""
    return probe.holds and probe.lost <= 0


def _look(lesson: "TrainingRun", share: float) -> Probe | None:
    return _seen(lesson, share) if lesson.watch.look is not None else None


def _seen(lesson: "TrainingRun", share: float) -> Probe:
    probe, _ = lesson.watch.probed()
    lesson.watch.notes.holds_in_a_row = 0
    known = "" if probe.knowledge is None else f" · knowledge {probe.knowledge:.3f}"
    at = f"{share:g} of the way back" if share else "before the first step"
    log.info(f"  probe {at}: behaviour {probe.behaviour:.3f}{known}")
    return probe


def _missing(probe: Probe, tried: dict[float, Probe], limit: float) -> float:
    """How far from being good at both: what distillation will have to make up for, knowledge it cannot bring back."""
    best = max(each.behaviour for each in tried.values())
    lost = max(0.0, limit - probe.knowledge) if probe.knowledge is not None else 0.0
    return max(0.0, best - probe.behaviour) + 3 * lost


def _scores(probe: Probe) -> dict[str, Any]:
    return {"behaviour": probe.behaviour, "knowledge": probe.knowledge, "holds": probe.holds}
