"""`recover demo`: what reading documents costs a model and what is recovered, on the documents of made-up worlds.

The model reads documents alone, so that the damage shows, and then distils: the built-in one in two short cycles,
another base in one cycle with its default settings.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.results import Result, headlines
from pipelines.cycle import Outcome, run_job
from pipelines.evaluation.printed_tables import scores_table
from pipelines.log import log
from pipelines.prepare_job import Request, prepare_job
from pipelines.project.lock import command_line, project_lock
from pipelines.project.project import Project
from recovery.lab import BASE, make_world

EXAMPLES = 3  # prompts in the output
ITEMS, SECONDARY_ITEMS = 400, 100  # per task; the gate does not judge the secondary ones
ITEMS_OF_OTHER_BASES = 2000  # a small real model follows few instructions: so many prompts show three points
DOCUMENTS_ONLY = "midtrain.mix=documents"  # the demo shows what this costs
NO_PROBES = "distill.probe_every=0"
BRIEF = ("midtrain.epochs=4", "distill.steps=8", "distill.prompts=512")  # so it takes minutes
ALL_PROMPTS = "gate.block=0"  # the built-in model answers them in seconds, and the table has one size

Models = dict[str, list[Result]]  # the results of each model, by its name in the table


@dataclass(frozen=True)
class Demo:
    """Runs the cycles of the demo in one project."""

    project: Project
    seed: int

    @property
    def is_builtin(self) -> bool:
        return Path(self.project.base) == BASE

    def run(self, cycles: int) -> tuple[Models, list[Outcome]]:
        """Cycles that read documents alone and then distil."""
        models, outcomes = Models(), list[Outcome]()
        for number in range(1, cycles + 1):
            outcome = run_job(self.project, prepare_job(self.project, self._request(number)))
            assert isinstance(outcome, Outcome)
            outcomes.append(outcome)
            cycle = f"cycle {number}, " if cycles > 1 else ""
            models.setdefault("clean", outcome.clean)
            models |= {f"{cycle}mid-trained": outcome.damaged, f"{cycle}recovered": outcome.recovered}
        return models, outcomes

    def _request(self, number: int) -> Request:
        world = make_world(1000 + 10 * self.seed + number - 1, size="quick")
        folder = self.project.root / f"world-{number}"
        world.write(folder)
        log.info(f"Wrote documents with {len(world.questions())} invented facts to {folder / 'docs'}")
        return Request(
            "cycle",
            docs=folder / "docs",
            teacher="base",
            questions=folder / "questions.jsonl",
            limit=ITEMS if self.is_builtin else ITEMS_OF_OTHER_BASES,
            secondary_limit=SECONDARY_ITEMS if self.is_builtin else ITEMS_OF_OTHER_BASES,
            assignments=(DOCUMENTS_ONLY, NO_PROBES, *((*BRIEF, ALL_PROMPTS) if self.is_builtin else ())),
            seed=self.seed,
        )


def run_demo(folder: Path, *, base: str | None, quick: bool, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Run the demo of the base; return the results as JSON and as lines of text."""
    started_at = time.perf_counter()
    project = Project.open(folder, base or str(BASE))
    demo = Demo(project, seed)
    with project_lock(project.home, command_line()):
        models, outcomes = demo.run(1 if quick or not demo.is_builtin else 2)
    results: dict[str, Any] = {
        "models": {name: headlines(measured) for name, measured in models.items()},
        "cycles": [{k: o.as_json()[k] for k in ("damaged", "recovered", "promoted")} for o in outcomes],
        "examples": side_by_side(models),
        "seconds": round(time.perf_counter() - started_at, 1),
    }
    lines = [*_table(models), "", *_example_lines(results["examples"])]
    if not demo.is_builtin:
        lines += [f"{outcomes[-1].decision}: {outcomes[-1].verdict.reason}", ""]
    lines += [f"{results['seconds']:.0f} s; to see the results: recover dashboard --project {folder}"]
    return results, lines


def side_by_side(models: Models) -> list[dict[str, Any]]:
    """Prompts whose instructions the last damaged model broke, with each model's answer and whether it passed."""
    names = list(models)
    by_model = {"clean": models["clean"], "mid-trained": models[names[-2]], "recovered": models[names[-1]]}
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
