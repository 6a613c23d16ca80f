"""`recover check`: what a fine-tune has forgotten of its base, and what it learned."""

from dataclasses import dataclass, replace
from typing import Any

from evals.results import Result, main_result
from pipelines.cycle import Cycle
from pipelines.forgetting_rows import Change, change_table, forgotten_rows, learned_rows
from pipelines.gate.verdict import Verdict, forgetting_reason
from pipelines.prepare_repair import Prepared
from pipelines.project.project import Project
from pipelines.training.stage_context import Stage
from pipelines.turn_ends import TurnEnds, examine_turn_ends

SENTENCES = {
    "passed": "{model} has kept what {base} could do",
    "failed": "{model} has forgotten more than the gate allows",
    "inconclusive": "There are too few items to tell whether {model} has forgotten more than the gate allows",
}


@dataclass(frozen=True)
class CheckResult:
    model: str
    base: str
    verdict: Verdict
    forgotten: list[Change]
    learned: list[Change]
    notes: list[str]
    turn_ends: TurnEnds

    @property
    def summary(self) -> str:
        sentence = SENTENCES[self.verdict.outcome].format(model=self.model, base=self.base)
        return f"{sentence}: {forgetting_reason(self.verdict)}."

    def lines(self) -> list[str]:
        return [
            *change_table([*self.forgotten, *self.learned], ("base", "model")),
            *self.turn_ends.lines(),
            *self.notes,
            self.summary,
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "checkpoint": self.model,
            "base": self.base,
            "outcome": self.verdict.outcome,
            "summary": self.summary,
            "verdict": self.verdict.as_dict(),
            "forgotten": [row.as_json() for row in self.forgotten],
            "learned": [row.as_json() for row in self.learned],
            "notes": self.notes,
            "turn_ends": self.turn_ends.as_json(),
        }


def check_model(project: Project, prepared: Prepared, model: str) -> CheckResult:
    """Measure both and judge. All items count: a check trains nothing, so it needs no probes."""
    settings = prepared.job.settings
    unprobed = settings.model_copy(update={"distill": settings.distill.model_copy(update={"probe_every": 0})})
    job = replace(prepared.job, settings=unprobed)
    notes = prepared.about.notes(project.base_name)
    if prepared.own_template:
        own = replace(job, student=project.resolve(prepared.own_template).id, id=f"{job.id}-own")
        clean, results, verdict = Cycle(Stage(project, own)).judge_student()
        notes.append(
            _template_note(results, Cycle(Stage(project, job)).judge_student(with_samples=False)[1], project.base_name)
        )
    else:
        clean, results, verdict = Cycle(Stage(project, job)).judge_student()
    forgotten, learned = forgotten_rows(clean, results), learned_rows(clean, results)
    turn_ends = examine_turn_ends(project.path_of(model), project.base)
    return CheckResult(model, project.base_name, verdict, forgotten, learned, notes, turn_ends)


def _template_note(own: list[Result], with_base_template: list[Result], base: str) -> str:
    """Tell the template apart from the weights."""
    a, b = (main_result(results, "behaviour") for results in (own, with_base_template))
    assert a is not None
    assert b is not None
    return (
        f"With the chat template of {base} it follows {b.headline.value:.3f} of the instructions, with its own "
        f"{a.headline.value:.3f}: `recover repair` keeps that of {base}"
    )
