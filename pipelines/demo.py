"""`recover demo`: what reading documents costs a model and what is recovered, on the documents of made-up worlds.

The built-in model reads documents alone in two cycles, each of which a brief distillation repairs. Another base reads
its documents alone once, which shows the damage; then it runs one cycle with the default settings from the start.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from db.views import Checkpoint
from evals.results import Result, headlines
from evals.suites.config import load_suites
from pipelines.cycle import Outcome, run_job
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.evaluation.measure import measure_checkpoint
from pipelines.evaluation.printed_tables import scores_table
from pipelines.log import log
from pipelines.prepare_job import Request, prepare_job
from pipelines.project.lock import command_line, project_lock
from pipelines.project.project import Project
from pipelines.training.training_run import RunResult
from recovery.lab import BASE, make_world

EXAMPLES = 3  # prompts in the output
ITEMS, SECONDARY_ITEMS = 400, 100  # per task; the gate does not judge the secondary ones
ITEMS_OF_OTHER_BASES = 2000  # a small real model follows few instructions: so many prompts show three points
DOCUMENTS_ONLY = "midtrain.mix=documents"  # the demo shows what this costs
NO_PROBES = "distill.probe_every=0"
BRIEF = ("midtrain.epochs=4", "distill.steps=8", "distill.prompts=512", NO_PROBES)  # so it takes minutes

Models = dict[str, list[Result]]  # the results of each model, by its name in the table


@dataclass(frozen=True)
class Demo:
    """Runs the commands of the demo in one project."""

    project: Project
    seed: int

    def damage_and_repair(self, cycles: int) -> tuple[Models, list[Outcome]]:
        """Cycles that read documents alone and then distil briefly."""
        models, outcomes = Models(), list[Outcome]()
        for number in range(1, cycles + 1):
            outcome = self._run(self._request("cycle", number, (DOCUMENTS_ONLY, *BRIEF), ITEMS, SECONDARY_ITEMS))
            assert isinstance(outcome, Outcome)
            outcomes.append(outcome)
            models.setdefault("clean", outcome.clean)
            models |= {f"cycle {number}, mid-trained": outcome.damaged, f"cycle {number}, recovered": outcome.recovered}
        return models, outcomes

    def damage_and_defaults(self) -> tuple[Models, list[Outcome]]:
        """The documents alone; then, from the clean model, one cycle with the default settings."""
        request = self._request("midtrain", 1, (DOCUMENTS_ONLY,), ITEMS_OF_OTHER_BASES, ITEMS)
        job = prepare_job(self.project, request)
        damaged = run_job(self.project, job)
        assert isinstance(damaged, RunResult)
        plan = job.eval_plan.with_public_ifeval_checked(load_suites(self.project.base))
        models = {"clean": self._measure(self.project.clean, plan, "the clean model")}
        models |= {"documents alone": self._measure(damaged.checkpoint, plan, "the model that read documents alone")}
        for line in _table(models):
            log.info(line)
        outcome = self._run(replace(request, command="cycle", teacher="base", assignments=(NO_PROBES,)))
        assert isinstance(outcome, Outcome)
        return models | {"mid-trained": outcome.damaged, "recovered": outcome.recovered}, [outcome]

    def _request(
        self, command: Any, number: int, assignments: tuple[str, ...], limit: int, secondary_limit: int
    ) -> Request:
        world = make_world(1000 + 10 * self.seed + number - 1, size="quick")
        folder = self.project.root / f"world-{number}"
        world.write(folder)
        log.info(f"Wrote documents with {len(world.questions())} invented facts to {folder / 'docs'}")
        return Request(
            command,
            docs=folder / "docs",
            teacher=None if command == "midtrain" else "base",
            questions=folder / "questions.jsonl",
            limit=limit,
            secondary_limit=secondary_limit,
            assignments=assignments,
            seed=self.seed,
        )

    def _run(self, request: Request) -> RunResult | Outcome:
        return run_job(self.project, prepare_job(self.project, request))

    def _measure(self, checkpoint: Checkpoint, plan: EvalPlan, name: str) -> list[Result]:
        return measure_checkpoint(self.project, checkpoint, plan, None, name)


def run_demo(folder: Path, *, base: str | None, quick: bool, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Run the demo of the base; return the results as JSON and as lines of text."""
    started_at = time.perf_counter()
    project = Project.open(folder, base or str(BASE))
    demo = Demo(project, seed)
    with project_lock(project.home, command_line()):
        is_builtin = Path(project.base) == BASE
        models, outcomes = demo.damage_and_repair(1 if quick else 2) if is_builtin else demo.damage_and_defaults()
    results: dict[str, Any] = {
        "models": {name: headlines(measured) for name, measured in models.items()},
        "cycles": [{k: o.as_json()[k] for k in ("damaged", "recovered", "promoted")} for o in outcomes],
        "examples": side_by_side(models),
        "seconds": round(time.perf_counter() - started_at, 1),
    }
    lines = [*_table(models), "", *_example_lines(results["examples"])]
    if not is_builtin:
        lines += [f"{outcomes[-1].decision}: {outcomes[-1].verdict.reason}", ""]
    lines += [f"{results['seconds']:.0f} s; to see the results: recover dashboard --project {folder}"]
    return results, lines


def side_by_side(models: Models) -> list[dict[str, Any]]:
    """Prompts whose instructions the last damaged model broke, with each model's answer and whether it passed."""
    names = list(models)
    damaged = "documents alone" if "documents alone" in models else names[-2]
    by_model = {"clean": models["clean"], "mid-trained": models[damaged], "recovered": models[names[-1]]}
    items = {
        model: {i.key: i for r in results if r.task == "ifeval" for i in r.items} for model, results in by_model.items()
    }
    broken = [k for k, item in items["mid-trained"].items() if not item.passed and items["clean"][k].passed]
    return [
        {
            "prompt": items["clean"][key].prompt,
            "answers": {
                model: {"text": by_key[key].answer, "followed": by_key[key].passed} for model, by_key in items.items()
            },
        }
        for key in broken[:EXAMPLES]
    ]


def _table(models: Models) -> list[str]:
    return scores_table({name: headlines(results) for name, results in models.items()})


def _example_lines(examples: list[dict[str, Any]]) -> list[str]:
    lines = []
    for example in examples:
        lines += [f"» {example['prompt']}"]
        for model, answer in example["answers"].items():
            lines += [f"  {'✓' if answer['followed'] else '✗'} {model:<12} {_shorten(answer['text'])}"]
        lines += [""]
    return lines


def _shorten(text: str, width: int = 160) -> str:
    one_line = " ⏎ ".join(text.split("\n"))
    return one_line if len(one_line) <= width else one_line[: width - 1] + "…"
