"""What each recipe teaches an instruct model, beside its control, and what else that changes.

    python -m benchmarks.quality.recipe_effects --base REF --out DIR [--seed 1] [--only NAME …]
    python -m benchmarks.quality.recipe_effects --out DIR --table

Two tasks. "sums": additions of two two-digit numbers; a context, a label or a check says which reply is right, and
other sums are measured. "short": replies of one sentence, which a system prompt or a policy asks of the teacher; other
prompts are measured, without it. Recipes that read a context are also run with exchanged contexts, where prompts have
different ones (`--set distill.shuffle_contexts=true`).

Every run is `recover distill` on the base itself with so many steps. Of each recipe and seed there is one line in
DIR/results.jsonl, and an interrupted command goes on after the last of them. FLOPs are those of all training steps with
their rollouts and teachers.
"""

import argparse
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.common import table
from evals.results import Metric, headlines
from evals.subject import Subject
from evals.suites.config import load_suites
from evals.suites.suite_measurement import measure
from pipelines.cycle import run_job
from pipelines.jobs.job import unfinished_jobs
from pipelines.model_loading import open_subject
from pipelines.outcome import Outcome
from pipelines.prepare_job import prepare_job
from pipelines.project.project import Project
from pipelines.request import Request
from pipelines.synthetic.prompts import write_prompts

SUMS, SHORT = "sums", "short"
SYSTEM_PROMPT = "Answer every message in one short sentence of at most fifteen words."
POLICY = "Replies are one short sentence of at most fifteen words. Lists, headings and second sentences are forbidden."
MAX_WORDS = 15
REPLY_TOKENS = 64
MEASURES = ("sums", "short", "instructions", "old knowledge", "pflops", "seconds")
SHUFFLED = "distill.shuffle_contexts=true"
JUDGED_BRIEFLY = ("distill.probe_every=0", "gate.block=0", "gate.samples=0", "distill.warm_start=off")


@dataclass(frozen=True)
class Arm:
    task: str = ""
    recipe: str = ""  # empty: the base as it is
    settings: tuple[str, ...] = ()


ARMS = {
    "base": Arm(),
    "sft": Arm(SUMS, "sft"),
    "dft": Arm(SUMS, "dft"),
    "sft-anchored": Arm(SUMS, "sft-anchored"),
    "asft": Arm(SUMS, "asft"),
    "rs-sft": Arm(SUMS, "rs-sft"),
    "grpo": Arm(SUMS, "grpo"),
    "teacher-reward": Arm(SUMS, "teacher-reward"),
    "opsd": Arm(SUMS, "opsd"),
    "opsd, shuffled": Arm(SUMS, "opsd", (SHUFFLED,)),
    "sdft": Arm(SUMS, "sdft"),
    "sdft, shuffled": Arm(SUMS, "sdft", (SHUFFLED,)),
    "pi-distill": Arm(SUMS, "pi-distill"),
    "opcd": Arm(SHORT, "opcd"),
    "deliberative": Arm(SHORT, "deliberative"),
    "deliberative-sft": Arm(SHORT, "deliberative-sft"),
    "self-sft": Arm(SHORT, "self-sft"),
    "continuation": Arm(SHORT, "continuation"),
}
CONTEXT_FIELD = {"opsd": "solution", "sdft": "demonstration", "pi-distill": "solution"}


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="a model folder or a hub id")
    parser.add_argument("--out", type=Path, required=True, help="the folder of projects and results")
    parser.add_argument("--seed", type=int, default=1, help="of the sums, the prompts and all sampling")
    parser.add_argument("--only", action="append", default=[], choices=list(ARMS), metavar="NAME", help="one of them")
    parser.add_argument("--steps", type=int, default=30, help="of each distillation")
    parser.add_argument("--rows", type=int, default=16, help="of each step")
    parser.add_argument("--items", type=int, default=200, help="of each measurement")
    parser.add_argument("--engine", default="auto", choices=["auto", "transformers", "vllm"])
    parser.add_argument("--set", dest="assignments", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--table", action="store_true", help="print the table of what was measured")
    args = parser.parse_args(argv)
    if not args.table and not args.base:
        parser.error("--base is needed to measure anything")
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "results.jsonl"
    if not args.table:
        effects = Effects(args)
        for name in args.only or ARMS:
            if (name, args.seed) not in {(row["recipe"], row["seed"]) for row in read_rows(file)}:
                row = effects.run(name)
                with file.open("a") as lines:
                    lines.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)
    rows = read_rows(file)
    print_table(rows)
    return rows


class Effects:
    """The prompts of a seed, and the arms, each with a job of its own in one project."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.folder = args, args.out / f"seed-{args.seed}"
        self.folder.mkdir(exist_ok=True)
        self.project = Project.open(self.folder, args.base)
        self.base = self.project.base

    def run(self, name: str) -> dict[str, Any]:
        arm, start = ARMS[name], time.perf_counter()
        path, flops = self._train(name, arm) if arm.recipe else (self.base, 0.0)
        cost = {"pflops": flops / 1e15, "seconds": round(time.perf_counter() - start)}
        return {"recipe": name, "seed": self.args.seed, "path": path, **cost, **self._measure(path)}

    def _train(self, name: str, arm: Arm) -> tuple[str, float]:
        """The checkpoint's path, and the FLOPs of all training steps."""
        job_id = re.sub(r"\W+", "-", name)
        job = next((job for job in unfinished_jobs(self.project.home) if job.id == job_id), None)
        earlier = {run.id for run in self.project.reader.runs(self.project.id) if run.inputs.job != job_id}
        result = run_job(self.project, job or prepare_job(self.project, self._request(arm), job_id))
        trained = result.distilled if isinstance(result, Outcome) else result
        reader = self.project.reader
        runs = [run.id for run in reader.runs(self.project.id) if run.id not in earlier]
        flops = sum(point.value for run in runs for point in reader.points(run, names=["flops"]))
        return str(trained.checkpoint.path), flops

    def _request(self, arm: Arm) -> Request:
        args = self.args
        settings = [
            *JUDGED_BRIEFLY,
            f"distill.steps={args.steps}",
            f"distill.rows={args.rows}",
            f"distill.max_new_tokens={REPLY_TOKENS}",
            *arm.settings,
            *args.assignments,
        ]
        context, prompts = None, None
        if arm.recipe in ("opcd", "deliberative", "deliberative-sft"):
            context = self.folder / f"{arm.recipe}.txt"
            context.write_text(SYSTEM_PROMPT if arm.recipe == "opcd" else POLICY)
            prompts = self._lines("prompts.jsonl", [{"prompt": text} for text in self._ordinary_prompts])
        elif arm.task == SHORT:
            prompts = self._lines("prompts.jsonl", [{"prompt": text} for text in self._ordinary_prompts])
        elif field := CONTEXT_FIELD.get(arm.recipe):
            rows = [{"prompt": text, field: worked, "answer": right} for text, worked, right in self._sums]
            context = self._lines(f"{arm.recipe}.jsonl", rows)
        else:  # the reply is learned as a label, or says what a right one states
            is_label = arm.recipe in ("sft", "dft", "sft-anchored", "asft")
            rows = [{"prompt": text, "answer": worked if is_label else right} for text, worked, right in self._sums]
            prompts = self._lines("labels.jsonl" if is_label else "checked.jsonl", rows)
        return Request(
            "distill",
            student="base",
            recipe=arm.recipe,
            prompts=prompts,
            teacher_context=context,
            engine=args.engine,
            limit=4,
            seed=args.seed,
            assignments=tuple(settings),
        )

    @cached_property
    def _sums(self) -> list[tuple[str, str, str]]:
        return sums(f"trained/{self.args.seed}", self.args.steps * self.args.rows)

    @cached_property
    def _ordinary_prompts(self) -> list[str]:
        """Half of what the base writes is trained on, and the other half is measured."""
        return self._written[: len(self._written) // 2]

    @cached_property
    def _written(self) -> list[str]:
        file = self.folder / "written.json"
        if not file.exists():
            with open_subject(self.base, self.args.engine) as subject:
                count = 2 * max(self.args.items, self.args.rows * self.args.steps)
                file.write_text(json.dumps(write_prompts(subject.engine, subject.chat, count, self.args.seed)))
        written: list[str] = json.loads(file.read_text())
        return written

    def _measure(self, path: str) -> dict[str, Any]:
        suites, items = load_suites(self.base), self.args.items
        asked = self._written[len(self._written) // 2 :][:items]
        with open_subject(path, self.args.engine) as subject:
            results = measure(subject, "behaviour", limit=items, suites=suites)
            results += measure(subject, "retention", limit=items, suites=suites)
            right = self._right_sums(subject)
            short = [is_short(reply.text) and reply.finished for reply in subject.answer(asked, REPLY_TOKENS)]
        scores = headlines(results)
        row: dict[str, Any] = {"instructions": scores["behaviour"], "old knowledge": scores["retention"]}
        for name, passes in ((SUMS, right), (SHORT, short)):
            metric = Metric.from_passes(passes)
            row[name] = [metric.value, metric.n, *metric.ci95]
        return row

    def _right_sums(self, subject: Subject) -> list[bool]:
        trained = {text for text, _, _ in self._sums}
        asked = [row for row in sums("measured", 2 * self.args.items) if row[0] not in trained][: self.args.items]
        replies = subject.answer([text for text, _, _ in asked], REPLY_TOKENS)
        return [
            re.search(rf"\b{right}\b", reply.text) is not None
            for (_, _, right), reply in zip(asked, replies, strict=True)
        ]

    def _lines(self, name: str, rows: Sequence[dict[str, str]]) -> Path:
        file = self.folder / name
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file


def sums(seed: str, count: int) -> list[tuple[str, str, str]]:
    """(question, worked answer, result), all different."""
    rng, rows = Random(f"sums/{seed}"), dict[str, tuple[str, str, str]]()
    while len(rows) < count:
        a, b = rng.randint(11, 99), rng.randint(11, 99)
        text = f"What is {a} + {b}?"
        rows[text] = (text, f"{a} + {b} = {a + b}", str(a + b))
    return list(rows.values())


def is_short(reply: str) -> bool:
    """One sentence of a few words."""
    text = reply.strip()
    return 0 < len(text.split()) <= MAX_WORDS and "\n" not in text and not re.search(r"[.!?]\s+\S", text)


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """The mean of every measure over the seeds, with the lowest and the highest where there are several."""
    lines = []
    for name, arm in ARMS.items():
        if of_arm := [row for row in rows if row["recipe"] == name]:
            values = [[row[m][0] if isinstance(row[m], list) else row[m] for row in of_arm] for m in MEASURES]
            lines.append([name, arm.task, str(len(of_arm)), *map(_spread, values)])
    table(["recipe", "task", "seeds", *MEASURES], lines)


def _spread(values: Sequence[float]) -> str:
    mean = f"{sum(values) / len(values):.3g}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.3g} – {max(values):.3g})"


if __name__ == "__main__":
    main()
