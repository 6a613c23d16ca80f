"""Three checkpoints that were trained apart become one model by distillation; beside the average of their weights.

    python -m benchmarks.quality.experts --out DIR [--seed 1] [--steps 40] [--items 400]
    python -m benchmarks.quality.experts --out DIR --table

The experts begin with the built-in model: one learns sums of three two-digit numbers, one the documents of an invented
world, one further instructions with their right answers. Then the built-in model learns from all three, each on the
prompts of its domain. It is this command:

    recover distill --student base --recipe offpolicy-kl --teacher sums=REF,world=REF,*=REF \\
        --prompts prompts.jsonl

Of each model and seed there is one line in DIR/experts.jsonl, and a run goes on after the last of them. The questions
on the world that are prompts have other wordings than those that are measured.
"""

import argparse
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.common import table
from evals.results import Metric, headlines
from evals.suites.config import load_suites
from evals.suites.knowledge import Question, measure_questions
from evals.suites.suite_measurement import measure
from pipelines.cycle import run_job
from pipelines.jobs.job import unfinished_jobs
from pipelines.model_loading import open_subject
from pipelines.outcome import Outcome
from pipelines.prepare_job import prepare_job
from pipelines.project.project import Project
from pipelines.request import Request
from recovery.lab import BASE, instruction_tasks, make_world
from recovery.models.interpolation import interpolate
from recovery.models.students import load_student, save_student

FIRST_WORLD = 9500
EXPERTS = ("sums", "world", "instructions")
MODELS = ("clean", *EXPERTS, "merged", "average")
MEASURES = ("sums", "world", "instructions", "own world")
JUDGED_BRIEFLY = ("distill.probe_every=0", "gate.block=0", "gate.samples=0", "distill.warm_start=off")
HELD_OUT, TRAINED = 1, 2  # seeds of the sums


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder of projects and results")
    parser.add_argument("--seed", type=int, default=1, help="of the world and of all sampling")
    parser.add_argument("--steps", type=int, default=40, help="of each distillation")
    parser.add_argument("--items", type=int, default=400, help="of each measurement")
    parser.add_argument("--prompts", type=int, default=1200, help="that are learned from; a third for each domain")
    parser.add_argument("--table", action="store_true", help="print the table of what was measured")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "experts.jsonl"
    if not args.table:
        bench = Experts(args)
        for name in MODELS:
            if (name, args.seed) not in {(row["model"], row["seed"]) for row in read(file)}:
                row = bench.run(name)
                with file.open("a") as lines:
                    lines.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)
    rows = read(file)
    print_table(rows)
    return rows


class Experts:
    def __init__(self, args: argparse.Namespace):
        self.args, self.folder = args, args.out / f"seed-{args.seed}"
        self.world = make_world(FIRST_WORLD + args.seed, "quick")
        self.docs = self.world.write(self.folder / "world")
        self.each = args.prompts // len(EXPERTS)

    @cached_property
    def project(self) -> Project:
        return Project.open(self.folder, str(BASE))

    def run(self, name: str) -> dict[str, Any]:
        path = str(BASE) if name == "clean" else self._average() if name == "average" else self._train(name)
        return {"model": name, "seed": self.args.seed, "path": path, **self._measure(path)}

    def _train(self, name: str) -> str:
        job_id = f"expert-{name}"
        job = next((job for job in unfinished_jobs(self.project.home) if job.id == job_id), None)
        result = run_job(self.project, job or prepare_job(self.project, self._request(name), job_id))
        trained = result.distilled if isinstance(result, Outcome) else result
        return str(trained.checkpoint.path)

    def _request(self, name: str) -> Request:
        steps = self.args.steps * (len(EXPERTS) if name == "merged" else 1)  # as many for each domain
        settings = (*JUDGED_BRIEFLY, f"distill.steps={steps}")
        if name == "world":
            return Request("midtrain", docs=self.docs, mix="documents", limit=4, seed=self.args.seed)
        if name == "merged":
            sums, world, instructions = (self._path(expert) for expert in EXPERTS)
            teacher, prompts = f"sums={sums},world={world},*={instructions}", self._prompts()
        else:
            teacher, prompts = "base", self._answered(name)
        return Request(
            "distill",
            student="base",
            teacher=teacher,
            recipe="offpolicy-kl" if name == "merged" else "sft",
            prompts=self._write(f"{name}.jsonl", prompts),
            limit=4,
            seed=self.args.seed,
            assignments=settings,
        )

    def _answered(self, name: str) -> list[dict[str, str]]:
        if name == "sums":
            return [
                {"prompt": question.text, "answer": worked}
                for question, worked in sums(TRAINED + self.args.seed, self.args.prompts)
            ]
        tasks = instruction_tasks(FIRST_WORLD + self.args.seed, self.args.prompts, "train")
        return [{"prompt": task.prompt, "answer": task.answer} for task in tasks]

    def _prompts(self) -> list[dict[str, str]]:
        """Without answers: those are the teachers'."""
        of_sums = [question.text for question, _ in sums(TRAINED + self.args.seed, self.each)]
        measured = {question.question for question in self.world.questions()}
        wordings = [
            question
            for fact in self.world.facts
            for i in range(len(fact.relation.questions))
            if (question := fact.question(i).question) not in measured
        ]
        tasks = instruction_tasks(FIRST_WORLD + self.args.seed, self.each, "train")
        rows = [{"prompt": text, "domain": "sums"} for text in of_sums]
        rows += [{"prompt": text, "domain": "world"} for text in Random(0).choices(wordings, k=self.each)]
        rows += [{"prompt": task.prompt} for task in tasks]
        Random(self.args.seed).shuffle(rows)
        return rows

    def _average(self) -> str:
        """The mean of the three experts' weights."""
        first, second, third = (self._path(expert) for expert in EXPERTS)
        mean = interpolate(interpolate(load_student(first), second, 1 / 2), third, 1 / 3)
        folder = self.folder / "average"
        save_student(mean, folder, {})
        return str(folder)

    def _path(self, expert: str) -> str:
        rows = read(self.args.out / "experts.jsonl")
        return str(next(r["path"] for r in rows if (r["model"], r["seed"]) == (expert, self.args.seed)))

    def _measure(self, path: str) -> dict[str, Any]:
        suites, limit = load_suites(str(BASE)), self.args.items
        with open_subject(path, "transformers") as subject:
            results = measure(subject, "behaviour", limit=limit, suites=suites)
            results += measure(subject, "retention", limit=limit, suites=suites)
            held_out = measure_questions(subject, [question for question, _ in sums(HELD_OUT, limit)], data="sums")
            questions = [Question(q.question, q.answer) for q in self.world.questions()]
            world = measure_questions(subject, questions, data="world")
        scores = headlines(results)
        row: dict[str, Any] = {"instructions": scores["behaviour"], "own world": scores["retention"]}
        for name, result in (("sums", held_out), ("world", world)):
            row[name] = Metric.from_passes([item.passed for item in result.items]).value
        return row

    def _write(self, name: str, rows: Sequence[dict[str, str]]) -> Path:
        file = self.folder / name
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file


def sums(seed: int, count: int) -> list[tuple[Question, str]]:
    """Longer ones than the built-in model learned, with their worked answers."""
    rng, rows = Random(f"sums/{seed}"), []
    for _ in range(count):
        a, b, c = (rng.randint(11, 39) for _ in range(3))
        worked = f"{a} + {b} = {a + b} and {a + b} + {c} = {a + b + c}\nAnswer: {a + b + c}"
        rows.append((Question(f"What is {a} + {b} + {c}?", str(a + b + c)), worked))
    return rows


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """The mean of every measure over the seeds, with the lowest and the highest where there are several."""
    lines = []
    for name in MODELS:
        of_model = [row for row in rows if row["model"] == name]
        if of_model:
            cells = [_spread([row[measure] for row in of_model]) for measure in MEASURES]
            lines.append([name, str(len(of_model)), *cells])
    table(["model", "seeds", *MEASURES], lines)


def _spread(values: Sequence[float]) -> str:
    mean = f"{sum(values) / len(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.3f} – {max(values):.3f})"


if __name__ == "__main__":
    main()
