"""What a verdict can show with the prompts that there are, before anything is computed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from db.tables import Cycle
from evals.stats.paired_comparison import n_needed, smallest_margin
from evals.stats.sequential import greedy_alpha, sample_levels
from evals.suites.suite_measurement import count_prompts
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.gate.verdict import behaviour_limit
from pipelines.settings.schema import Gate

ASSUMED, MANY = 0.1, 0.25  # shares of prompts on which two models differ, where no earlier verdict says it
STABLE = 0.3  # of these prompts, the assumed share on which the models differ in every reply


@dataclass(frozen=True)
class Case:
    """What can be shown if the two models' verdicts differ on this share of the prompts."""

    differ: float
    source: Literal["assumed", "earlier verdicts"]
    smallest_loss: float  # that can be ruled out, with 80 % power, where there is none
    needed: int | None  # prompts for the gate's margin; None if no number is enough
    with_samples: float | None = None  # the smallest loss after all further replies; None if none are drawn


@dataclass(frozen=True)
class Attainable:
    prompts: int
    margin: float
    cases: list[Case]
    can_ask_more: bool  # with --limit
    samples: int = 0  # further replies to each prompt, at most

    def lines(self) -> list[str]:
        """What can be shown, and what to do where that is not enough; for the log."""
        first, *others = self.cases
        losses = f"{first.smallest_loss:.3f} if {_percent(first)} of them come out differently"
        losses += "".join(f", {case.smallest_loss:.3f} if {_percent(case)} do" for case in others)
        source = "assumed" if first.source == "assumed" else "as in earlier verdicts"
        line = f"With {self.prompts:,} prompts, the smallest loss that the verdict can rule out is {losses} ({source})"
        hardly = [case for case in self.cases if case.smallest_loss > self.margin]
        if not hardly:
            return [f"{line}; the gate asks for {self.margin:.3f}"]
        lines = [line]
        if self.samples:
            sampled = " or ".join(f"{case.with_samples:.3f}" for case in self.cases)
            replies = "1 further reply" if self.samples == 1 else f"{self.samples} further replies"
            lines += [
                f"  Where that does not decide, both models give up to {replies} to each prompt, which takes longer "
                f"than estimated; then it is about {sampled}"
            ]
            hardly = [case for case in hardly if (case.with_samples or 1.0) > self.margin]
        if not hardly:
            return [*lines, f"  The gate asks for {self.margin:.3f}, which further replies can show"]
        needed = [f"{case.needed:,}" for case in self.cases if case.needed]
        takes = f"takes about {' or '.join(needed)} prompts" if needed else "no number of prompts can show"
        return [
            *lines,
            f"  The gate asks for {self.margin:.3f}, which {takes}: with {self.prompts:,} it can hardly be shown if "
            f"{_percent(hardly[0])} come out differently",
            f"  {self._advice(hardly[-1].needed)}",
        ]

    def _advice(self, needed: int | None) -> str:
        margin = "accept a larger loss (gate.behaviour_margin)"
        if needed is None:
            return margin.capitalize()
        more = f"--limit {needed}" if self.can_ask_more else "--ifeval-data FILE, with more prompts than these"
        return f"Ask more prompts ({more}) or {margin}"


def attainable(gate: Gate, plan: EvalPlan, named: Mapping[str, str], cycles: list[Cycle]) -> Attainable | None:
    """None where the number of prompts is not known before: for a task of lm-eval."""
    prompts = count_prompts(named, plan.ifeval_data, plan.limit, plan.split, plan.public_ifeval)
    if prompts is None:
        return None
    margin = _margin(gate, cycles)
    confidence = 1 - greedy_alpha(gate.samples)
    cases = [
        Case(
            share,
            source,
            smallest_margin(prompts, share, confidence=confidence),
            n_needed(margin, share, confidence=confidence),
            _with_samples(prompts, share, gate.samples) if gate.samples else None,
        )
        for share, source in _shares(cycles)
    ]
    most = max((case.needed or 0 for case in cases), default=0)
    return Attainable(prompts, margin, cases, most > 0 and plan.can_measure("behaviour", most, named), gate.samples)


def _with_samples(prompts: int, differ: float, samples: int) -> float:
    """The smallest loss that the mean over all replies can rule out: what varies between replies averages out."""
    spread = differ * (STABLE + (1 - STABLE) / (1 + samples))
    return smallest_margin(prompts, spread, confidence=1 - sample_levels(samples)[-1])


def _margin(gate: Gate, cycles: list[Cycle]) -> float:
    """The loss that the gate allows. A share of what the clean model follows is known after its first measurement."""
    scores = [cycle.clean.scores["behaviour"].value for cycle in cycles if "behaviour" in cycle.clean.scores]
    known = [score for score in scores if score is not None]
    return behaviour_limit(gate, known[-1])[0] if known else gate.behaviour_margin


def _shares(cycles: list[Cycle]) -> list[tuple[float, Literal["assumed", "earlier verdicts"]]]:
    """The share of prompts that differed in earlier verdicts of the project, else assumptions."""
    behaviours: list[dict[str, Any]] = [(cycle.verdict or {}).get("behaviour") or {} for cycle in cycles]
    counts = [(b["differ"] * b["n"], b["n"]) for b in behaviours if isinstance(b.get("differ"), float)]
    if counts:
        return [(sum(differing for differing, _ in counts) / sum(n for _, n in counts), "earlier verdicts")]
    return [(ASSUMED, "assumed"), (MANY, "assumed")]


def _percent(case: Case) -> str:
    return f"{100 * case.differ:.0f} %"
