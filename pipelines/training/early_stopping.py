"""When to end a distillation: enough is recovered, a budget is spent, or training has collapsed.

A collapse is told from a recovery by what the clean model's replies are like, which is measured once, and cached.

Everything the decision depends on is in `MonitorState`, which is saved with the run: a resumed run decides as an
unbroken one would.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from pipelines.log import log
from pipelines.model_loading import open_subject
from pipelines.project.project import weights_id
from pipelines.settings.schema import Distill
from pipelines.training.probes import ProbeFunction, ProbeResult, best_knowledge
from pipelines.training.stage_context import Stage
from pipelines.training.stage_teachers import Teachers
from recovery.collapse import CleanReplies, CollapseWatch
from recovery.engines import Generation, Sampling
from recovery.recipes import Recipe
from recovery.states import Prompt
from recovery.telemetry import StepRecord

PROBES_IN_A_ROW = 2  # that must hold
CLEAN_REPLIES = 64  # shares of so many are exact to 0.06


@dataclass
class MonitorState:
    seconds: float = 0.0
    flops: float = 0.0
    tokens: int = 0
    holds_in_a_row: int = 0
    best_knowledge: float | None = None
    watch: CollapseWatch = field(default_factory=CollapseWatch)


class EarlyStopping:
    """Watches a run step by step. Without limits (mid-training) it only adds up time, FLOPs and tokens."""

    def __init__(
        self,
        limits: Distill | None = None,
        probe: ProbeFunction | None = None,
        best_knowledge: float | None = None,
        *,
        until_probes_hold: bool = True,
        clean: CleanReplies | None = None,
    ):
        self.limits, self.probe, self.until_probes_hold = limits, probe, until_probes_hold
        self.state = MonitorState(best_knowledge=best_knowledge, watch=CollapseWatch(clean))
        self.collapsed = False

    def restore(self, state: dict[str, Any]) -> None:
        self.state = MonitorState(**state | {"watch": CollapseWatch.restored(state["watch"])})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self.state)

    def after_step(self, record: StepRecord, steps: int) -> tuple[ProbeResult | None, str]:
        """(the probe's result, if one was due; the reason to stop, if there is one)."""
        state, limits = self.state, self.limits
        state.seconds += record.rollout_seconds + record.teacher_seconds + record.update_seconds
        state.flops += record.flops
        state.tokens += record.target_tokens
        if limits is None:
            return None, ""
        if reason := state.watch.after_step(record):
            self.collapsed = True
            return None, reason
        if limits.max_minutes and state.seconds > 60 * limits.max_minutes:
            return None, f"the budget of {limits.max_minutes:g} minutes is spent"
        if limits.max_flops and state.flops > limits.max_flops:
            return None, f"the budget of {limits.max_flops:.3g} FLOPs is spent"
        steps_done = record.step + 1
        if self.probe is None or not limits.probe_every or steps_done % limits.probe_every or steps_done == steps:
            return None, ""
        return self._probe(self.probe)

    def _probe(self, probe: ProbeFunction) -> tuple[ProbeResult, str]:
        state = self.state
        result = probe(state.best_knowledge)
        state.best_knowledge = best_knowledge(result.knowledge, state.best_knowledge)
        state.holds_in_a_row = state.holds_in_a_row + 1 if result.holds else 0
        enough = self.until_probes_hold and state.holds_in_a_row >= PROBES_IN_A_ROW
        return result, f"{PROBES_IN_A_ROW} probes in a row met the gate's limits" if enough else ""


def clean_replies(stage: Stage, chosen: Recipe, teachers: Teachers, prompts: Sequence[Prompt]) -> CleanReplies | None:
    """Of the teachers, to some of the prompts as they read them, with the rollouts' limit of tokens.

    None where nothing is rolled out or scored, or no teacher is a model that is loaded here and stays as it is. It
    loads the models, so it is called while no other is in memory."""
    if teachers.instead or not (chosen.on_policy_fraction and chosen.scores_with_teacher):
        return None
    seed, limit = stage.job.seed, stage.settings.distill.max_new_tokens
    some = Random(seed).sample(prompts, min(CLEAN_REPLIES, len(prompts)))
    tokens = {
        path: [some[i].teacher_prompt or some[i].tokens for i in indices]
        for path, indices in teachers.by_prompt(some).items()
    }
    sampling = Sampling(limit, seed=seed)

    def measure() -> dict[str, Any]:
        log.info(f"Sampling {len(some)} replies of {teachers}, to tell a collapse from a recovery")
        replies: list[Generation] = []
        for path, of_teacher in tokens.items():
            with open_subject(path, "transformers") as subject:  # vLLM would take longer to start than this
                replies += subject.engine.generate(of_teacher, sampling)
        return asdict(CleanReplies.of(replies))

    inputs = [limit, seed, *([weights_id(path), of_teacher] for path, of_teacher in tokens.items())]
    clean = CleanReplies(**stage.project.cache.get_or_write("clean-replies", inputs, measure))
    log.info(f"  Replies of {teachers}: {100 * clean.truncated:.0f} % are cut at {limit:,} tokens")
    return clean
