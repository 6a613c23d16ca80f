"""`recover demo`: what reading documents costs a model, and how a cycle prevents it.

The model first reads documents alone, so that the damage shows. Then a cycle with the default mix starts from the clean
model. With the built-in model both are shortened; another base has its default settings. Its jobs have fixed names, so
the same command goes on after an interruption, and computes nothing again once it has ended.
"""

import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from typing import Any

import torch

from db.headline_scores import MEASURES
from db.tables import last_decisions
from evals.results import Result, headlines
from pipelines.cycle import Cycle, Outcome, run_job
from pipelines.evaluation.printed_tables import scores_table, verdict_table
from pipelines.gate.promotion import current_user
from pipelines.gate.verdict import Verdict
from pipelines.job import Command, Job, unfinished_jobs
from pipelines.log import duration, log
from pipelines.prepare_job import prepare_job
from pipelines.project.lock import command_lock, published_progress
from pipelines.project.project import Project
from pipelines.request import Request
from pipelines.training.training_run import RunResult
from recovery.lab import BASE, make_world
from recovery.telemetry import peak_memory_bytes

EXAMPLES = 3  # prompts in the output
WIDTH = 160  # characters of an answer in the output
ITEMS = 600  # instruction prompts: enough to show a loss of a hundredth to be below three
QUICK_ITEMS = 200  # enough to show what documents alone cost
ITEMS_OF_OTHER_BASES = 2000  # a small real model follows few instructions: so many prompts show three points
DOCUMENTS_ALONE = "documents alone"  # its name in the table
DOCUMENTS_ONLY = "midtrain.mix=documents"  # the demo shows what this costs
NO_PROBES = "distill.probe_every=0"
BRIEF = (  # so that it takes minutes
    "midtrain.epochs=4",
    "midtrain.generated_texts=640",
    "distill.prompts=512",
    "distill.steps=4",
    "gate.block=0",  # the table has one number of prompts
    "distill.warm_start=0.2",  # gives back what so few texts of the base do not keep
)

Models = dict[str, list[Result]]  # the results of each model, by its name in the table


@dataclass(frozen=True)
class Demo:
    project: Project
    seed: int
    quick: bool

    @property
    def is_builtin(self) -> bool:
        return Path(self.project.base) == BASE

    @property
    def folder(self) -> Path:
        return self.project.root / "world"

    def documents_alone(self) -> tuple[Models, Verdict]:
        """Mid-train on the documents alone, measure, and reject the result, whatever it lost: it is a comparison."""
        project, tracker = self.project, self.project.tracker
        job = self._job("midtrain", DOCUMENTS_ONLY)
        shortened = "; with settings that make it short" if self.is_builtin else ""
        log.info(f"Part 1 of {1 if self.quick else 2}: the model reads the documents alone{shortened}")
        trained = run_job(project, job)
        assert isinstance(trained, RunResult)
        student = trained.checkpoint
        cycle = next(c for c in project.reader.cycles(project.id) if c.number == student.cycle)
        judged = Cycle(project, replace(job, student=student.id), cycle.id, cycle.number)
        with published_progress(project):
            clean, damaged, verdict = judged.judge_student("the model that read documents alone")
        if student.id not in last_decisions(project.reader.promotions(project.id)):
            reason = f"documents alone, for comparison: {verdict.reason}"
            tracker.promote(project.id, cycle.id, student.id, "rejected", current_user(), reason, verdict.as_dict())
        return {"clean": clean, DOCUMENTS_ALONE: damaged}, verdict

    def cycle(self) -> tuple[Models, Outcome]:
        outcome = run_job(self.project, self._job("cycle"))
        assert isinstance(outcome, Outcome)
        return {"clean": outcome.clean, "mid-trained": outcome.damaged, "recovered": outcome.recovered}, outcome

    def _job(self, command: Command, *settings: str) -> Job:
        """It begins with the clean model, also where a demo with another seed has promoted one."""
        request = Request(
            command,
            docs=self.folder / "docs",
            teacher="base" if command == "cycle" else None,
            questions=self.folder / "questions.jsonl",
            limit=(QUICK_ITEMS if self.quick else ITEMS) if self.is_builtin else ITEMS_OF_OTHER_BASES,
            assignments=(*settings, NO_PROBES, *(BRIEF if self.is_builtin else ())),
            seed=self.seed,
        )
        id = f"demo_{command}_{self.seed}{'_quick' * self.quick}"
        unfinished = (job for job in unfinished_jobs(self.project.home) if job.id == id)
        return next(unfinished, None) or prepare_job(self.project, request, id, start=self.project.clean)


def run_demo(folder: Path, *, base: str | None, quick: bool, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Run the demo of the base; return the results as JSON and as lines of text. With `quick` the model reads documents
    alone and nothing else."""
    started_at = time.perf_counter()
    project = Project.open(folder, base)
    demo = Demo(project, seed, quick)
    outcome = None
    with command_lock(project):
        world = make_world(1000 + 10 * seed, size="quick")
        world.write(demo.folder)
        log.info(f"Wrote documents with {len(world.facts)} invented facts to {demo.folder / 'docs'}")
        models, verdict = demo.documents_alone()
        took = [time.perf_counter() - started_at]
        for line in [verdict.headline("rejected"), *verdict_table(verdict.as_dict()), *_table(models)]:
            log.info(line)
        if not quick:
            log.info("Part 2 of 2: a cycle with the default mix begins with the clean model")
            measured, outcome = demo.cycle()
            models |= measured
            verdict = outcome.verdict
            took.append(time.perf_counter() - started_at - took[0])
    results: dict[str, Any] = {
        "models": {name: headlines(measured) for name, measured in models.items()},
        "verdict": verdict.as_dict(),
        "promoted": bool(outcome and outcome.promoted),
        "examples": side_by_side(models),
        "seconds": [round(seconds, 1) for seconds in took],
        "memory": peak_memory_bytes(torch.device("cpu")),
    }
    decision = verdict.headline(outcome.decision if outcome else "not promoted")
    lines = [decision, *verdict_table(results["verdict"]), "", *_table(models), ""]
    lines += [*_example_lines(results["examples"]), *in_words(results["models"])]
    parts = " and ".join(
        f"{part} took {duration(s)}" for part, s in zip(("The documents alone", "the cycle"), took, strict=False)
    )
    lines += [
        f"{parts}, with at most {results['memory'] / 1e9:.1f} GB of main memory.",
        "",
        *_next_lines(folder, outcome),
    ]
    return results, lines


def in_words(models: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    """What was learned and what it cost, against the clean model."""
    lines = []
    for name, what in ((DOCUMENTS_ALONE, "Reading the documents alone"), ("recovered", "The cycle")):
        if name in models:
            scores, clean = models[name], models["clean"]
            changes = [
                f"{100 * (after - before):+.1f} points of {words}"
                for measure, words in MEASURES.items()
                if (after := scores.get(measure)) is not None and (before := clean.get(measure)) is not None
            ]
            lines.append(f"{what}: {', '.join(changes)}.")
    return lines


def _next_lines(folder: Path, outcome: Outcome | None) -> list[str]:
    program = shlex.quote(sys.argv[0]) if Path(sys.argv[0]).name == "recover" and not which("recover") else "recover"
    project = f"--project {shlex.quote(str(folder))}"
    promoted = outcome is not None and outcome.promoted
    return [
        *([f"The promoted model as a folder: {program} export current --to ./promoted {project}"] * promoted),
        f"The results as pages: {program} dashboard {project}",
        f"Your own documents: {program} cycle --docs DIR --base MODEL",
        f"What a fine-tune has forgotten, and how to repair it: {program} check MODEL --base BASE",
    ]


def side_by_side(models: Models) -> list[dict[str, Any]]:
    """Prompts whose instructions the damaged model broke, with each model's answer and whether it passed."""
    shown = {name: models[name] for name in ("clean", DOCUMENTS_ALONE, "recovered") if name in models}
    items = {
        model: {i.key: i for r in results if r.task == "ifeval" for i in r.items} for model, results in shown.items()
    }
    asked_of_all = [key for key in items["clean"] if all(key in of_model for of_model in items.values())]
    broken = [k for k in asked_of_all if items["clean"][k].passed and not items[DOCUMENTS_ALONE][k].passed]
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
            lines += [f"  {'✓' if answer['followed'] else '✗'} {model:<15} {_shorten(answer['text'])}"]
        lines += [""]
    return lines


def _shorten(text: str) -> str:
    one_line = text.replace("\n", " ⏎ ")
    return one_line if len(one_line) <= WIDTH else one_line[: WIDTH - 1] + "…"
