"""Warm start: before distilling, move the weights towards those before mid-training, without training.

Where nothing is lost on the probe set, with or without this move, there is
nothing to distil. Unless the gate, which has more items, rejected the model:
then it is moved all the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from db.tables import Checkpoint
from pipelines.gate.verdict import LEAST_GAIN
from pipelines.log import log
from pipelines.project.runs import past_cycles
from pipelines.settings.schema import AUTO, DEFAULT_WARM_START, LATER_CYCLE_WARM_START, Settings
from pipelines.training.probes import EarlyStopping, ProbeResult
from pipelines.training.stage_context import Stage
from recovery.models.adapters import base_of
from recovery.models.interpolation import InterpolationError, WeightInterpolation
from recovery.models.students import Student

SHARES = (0.3, 0.5, 0.7)  # that "auto" tries, beside 0
NOTHING_LOST = "nothing is lost on the probe set, so there is nothing to distil"
ENOUGH = "the warm start was enough"


@dataclass(frozen=True)
class WarmStartPlan:
    """The weights to move towards, and the share of `warm_start = default`, for one model."""

    # The path of the weights mid-training began with, of an adapter what it sits on; the base, where neither is known.
    origin: Callable[[], str]
    share: float = DEFAULT_WARM_START
    new_adapter: bool = False  # it has not moved yet, so it has no earlier weights
    always: bool = False  # even where no behaviour is lost: for the knowledge of earlier cycles, which no probe asks
    rejected: bool = False  # the gate has rejected the model, on more items than a probe has


@dataclass(frozen=True)
class WarmStart:
    share: float | None = None  # None: the weights were left alone
    tried: dict[str, dict[str, Any]] | None = None  # by share, where "auto" searched
    stop_reason: str = ""  # why there is nothing left to distil

    def as_json(self) -> dict[str, Any] | None:
        if self.share is None:
            return None
        return ({"tried": self.tried} if self.tried else {}) | {"share": self.share}


def warm_start_plan(stage: Stage, student: Student, start: Checkpoint) -> WarmStartPlan:
    """Towards the weights that mid-training began with, if recorded; for an adapter, towards the model below it.

    A model that read documents alone lost much, and moves far. One that read a mix lost little, and moves only for
    what earlier cycles taught: once, before anything is distilled into it."""
    project = stage.project
    lineage, below = project.reader.lineage(start.id), student.adapter_base
    index = next((index for index, ancestor in enumerate(lineage) if ancestor.role == "midtrained"), len(lineage))
    origin = lineage[index + 1] if index + 1 < len(lineage) else None

    def to() -> str:
        return below or (project.verify(origin).path if origin else project.base)

    if below and not base_of(start.path):
        return WarmStartPlan(to, new_adapter=True)
    if origin is None:
        return WarmStartPlan(to, DEFAULT_WARM_START if below else 0.0)
    if _read_documents_alone(stage, lineage[index]):
        return WarmStartPlan(to)
    if index == 0 and not below and past_cycles(project, origin):
        return WarmStartPlan(to, LATER_CYCLE_WARM_START, always=True)
    if stage.settings.distill.warm_start == "default":
        log.info("No warm start by default: the documents were read beside the clean base's outputs (--warm-start)")
    return WarmStartPlan(to, 0.0)


def _read_documents_alone(stage: Stage, midtrained: Checkpoint) -> bool:
    """Whether nothing that the clean base wrote was read beside the documents."""
    run = stage.project.reader.run(midtrained.run_id) if midtrained.run_id is not None else None
    mix = (run.inputs.mix if run else None) or {}
    return not (mix.get("answers") or mix.get("texts"))


def warm_start(student: Student, monitor: EarlyStopping, settings: Settings, plan: WarmStartPlan) -> WarmStart:
    """Move the student to where distillation begins, by the probes of the monitor."""

    def probe(position: str) -> ProbeResult | None:
        if result := monitor.take_probe():
            log.info(f"  probe {position}: {result}")
        return result

    setting = settings.distill.warm_start
    is_default = setting == "default"
    share = plan.share if is_default else 0.0 if isinstance(setting, str) else setting
    if plan.new_adapter and not is_default and setting != "off":
        log.info("No warm start: a new adapter has no earlier weights to move towards")
    stays = setting == "off" or plan.new_adapter or (is_default and share == 0)
    first = last = probe("before the first step")
    healthy = first is not None and not plan.rejected and _nothing_lost(first)
    unmoved = WarmStart(stop_reason=NOTHING_LOST if healthy else "")
    if stays or (healthy and not (is_default and plan.always)):
        return unmoved
    try:
        line = WeightInterpolation(student, plan.origin())
    except InterpolationError as error:
        if not (is_default or setting == AUTO or plan.rejected):
            raise
        log.warning(f"No warm start: {error}")
        return unmoved
    tried = None
    if setting == AUTO:
        if first is None:
            log.info("No warm start: there is no probe set to choose its share by (see distill.probe_every)")
            return unmoved
        results = {0.0: first}
        for candidate in SHARES:
            line.move_to(candidate)
            probed = probe(f"after moving {_by(candidate)}")
            assert probed is not None
            results[candidate] = probed
        tried = {str(candidate): result.scores | {"holds": result.holds} for candidate, result in results.items()}
        share = _best_share(results, monitor.state.best_knowledge or 0.0, settings.gate.keep_knowledge)
        line.move_to(share)
        last = results[share]
    else:
        line.move_to(share)
        last = probe(f"after moving {_by(share)}" if share else "before the first step")
    if healthy and last is not None and not last.holds:
        line.move_to(0.0)
        log.info(f"No warm start: moving the weights {_by(share)} lost more than the gate allows")
        return WarmStart(0.0, tried, NOTHING_LOST)
    log.info(f"Warm start: the weights moved {_by(share)}")
    enough = share and last is not None and (healthy or _nothing_lost(last))
    return WarmStart(share, tried, ENOUGH if enough else "")


def _best_share(results: dict[float, ProbeResult], best_knowledge: float, keep_knowledge: float) -> float:
    """Of the probes by share, that of which the least has to be made up for."""
    first = results[0.0]
    # Half of the knowledge that may be lost is left for the distillation to lose.
    learned = max(0.0, best_knowledge - first.floor)
    limit = first.floor + (1 + keep_knowledge) / 2 * learned
    if first.floor and learned < LEAST_GAIN:
        limit = 0.0  # as in the verdict
    # A likelihood of answers may rise by a tenth only; a share of right answers is as large as it is.
    unit = max(learned, 2 * first.knowledge_error) if first.floor else 1.0
    return min(results, key=lambda share: (_shortfall(results[share], results, limit, unit), share))


def _by(share: float) -> str:
    return f"by {share:g} towards those before its training"


def _nothing_lost(result: ProbeResult) -> bool:
    """A single probe decides here, so it must be better than one of several during training."""
    return result.holds and result.lost <= 0


def _shortfall(candidate: ProbeResult, results: dict[float, ProbeResult], limit: float, unit: float) -> float:
    """What distillation has to make up for: lost behaviour, and knowledge in `unit`, which it cannot bring back."""
    best_behaviour = max(result.behaviour for result in results.values())
    best_retention = max(result.retention or 0.0 for result in results.values())
    lost = max(0.0, limit - candidate.knowledge) / unit if candidate.knowledge is not None and unit else 0.0
    return best_behaviour - candidate.behaviour + best_retention - (candidate.retention or 0.0) + 3 * lost
