"""Mid-training in context against mid-training on the documents: what each puts in, and what it costs.

    python -m benchmarks.quality.in_context --base REF --out DIR [--seed 1] [--only ARM …]
    python -m benchmarks.quality.in_context --out DIR --table

Every arm learns the documents of an invented world. The arms in context, and D, are trained on questions about half of
the facts, in other wordings than those that are measured; so knowledge is measured of covered and of uncovered facts.
Of each arm and seed there is one line in OUT/results.jsonl, and a run goes on after the last of them. FLOPs are those
of all training steps with their rollouts and teachers; what is written beforehand is in the seconds alone.

The built-in model was never trained to read, so the contexts give it nothing: name another with --base.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.common import table
from benchmarks.quality.midtrain_settings import kl_to_clean
from evals.results import Item, Metric, headlines
from evals.subject import Subject
from evals.suites.config import load_suites
from evals.suites.knowledge import Question, matches_reference, measure_questions
from evals.suites.suite_measurement import measure
from pipelines.cycle import run_job
from pipelines.documents.passages import passages_of
from pipelines.gate.promotion import decide
from pipelines.jobs.job import unfinished_jobs
from pipelines.model_loading import open_subject
from pipelines.outcome import Outcome
from pipelines.prepare_job import prepare_job
from pipelines.project.project import Project
from pipelines.request import Request
from pipelines.settings.defaults import defaults_for
from pipelines.synthetic.prompts import write_prompts
from pipelines.synthetic.questions import REFERS_TO_PASSAGE
from recovery.context_templates import PASSAGE
from recovery.engines import Sampling
from recovery.lab import make_world
from recovery.models.students import parameters_of
from recovery.recipes import RECIPES, recipe

BASIS = recipe("in-context")
VARIANTS = {
    "reverse": replace(BASIS, on_policy_fraction=1.0, data="none", beta=1.0),
    "forward": replace(BASIS, on_policy_fraction=1.0, data="none"),
    "off-policy": replace(BASIS, on_policy_fraction=0.0),
    "labels": replace(BASIS, on_policy_fraction=0.0, estimator="labels", beta=1.0),
}
ANSWER_TOKENS, SOFT_RATE = 64, 0.25  # of the teacher's answers; of the learning rate of arm L
LIFT = "distill.require_lift=false"  # the arms are compared whatever it is
QUICK_GATE = ("distill.probe_every=0", "gate.block=0")  # its verdict decides nothing here


@dataclass(frozen=True)
class Arm:
    about: str
    command: str = ""  # empty: nothing is trained
    recipe: str | None = None
    settings: tuple[str, ...] = ()
    mix: str | None = None
    after: str = ""  # the arm whose checkpoint it starts from


ARMS = {
    "clean": Arm("the base as it is"),
    "A": Arm("documents alone", "midtrain", mix="documents"),
    "B": Arm("A, 0.3 towards the base, then OPD", "distill", "opd", ("distill.warm_start=0.3",), after="A"),
    "C": Arm("the default mix and distillation, with all its steps", "cycle"),
    "D": Arm("C, then SFT on the questions with the teacher's answers", "distill", "sft", after="C"),
    "E": Arm("in context: reverse KL on rollouts", "midtrain", "reverse", (LIFT,)),
    "F": Arm("in context: forward KL on rollouts", "midtrain", "forward", (LIFT,)),
    "G": Arm("in context: the default, half rollouts", "midtrain", "in-context", (LIFT,)),
    "H": Arm("in context: off-policy, forward KL", "midtrain", "off-policy", (LIFT,)),
    "I": Arm("in context: off-policy, sampled labels", "midtrain", "labels", (LIFT,)),
    "J": Arm("G without ordinary prompts", "midtrain", "in-context", (LIFT, "midtrain.ordinary_prompts=0")),
    "K": Arm("G with shuffled passages", "midtrain", "in-context", (LIFT, "distill.shuffle_contexts=true")),
    "L": Arm("G, then the documents at a quarter of the rate", "midtrain", mix="documents", after="G"),
    "M": Arm("the base with the passage in its prompt"),
}


def main(argv: list[str] | None = None) -> None:
    args = _arguments(argv)
    results = args.out / "results.jsonl"
    if not args.table:
        RECIPES.update(VARIANTS)
        bench = Bench(args)
        for name in args.only or ARMS:
            if (name, args.seed) not in {(row["arm"], row["seed"]) for row in read_rows(results)}:
                row = bench.run(name)
                with results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)
    print_table(read_rows(results))


class Bench:
    """The world of a seed, its questions, and the arms, each in a project of its own."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.folder = args, args.out / f"seed-{args.seed}"
        world = make_world(9000 + args.seed, args.world)
        self.docs = world.write(self.folder / "world")
        passages = [passage for document in world.documents() for passage in passages_of(document.text)]
        self.measured: list[tuple[Question, str, bool]] = []  # with a passage that states it, and whether it is covered
        self.trained: list[dict[str, str]] = []
        for number, (fact, question) in enumerate(zip(world.facts, world.questions(), strict=True)):
            passage = next((text for text in passages if fact.entity.name in text and fact.value in text), "")
            is_covered = bool(passage) and number % 2 == 0
            self.measured.append((Question(question.question, question.answer), passage, is_covered))
            if is_covered:
                wordings = [fact.question(i) for i in range(len(fact.relation.questions))]
                other = next(wording for wording in wordings if wording.question != question.question)
                self.trained.append({"question": other.question, "answer": other.answer, "passage": passage})
        self.training_file = self.folder / "training_questions.jsonl"
        self.training_file.write_text("".join(json.dumps(row) + "\n" for row in self.trained))

    def run(self, name: str) -> dict[str, Any]:
        arm, start = ARMS[name], time.perf_counter()
        path, flops = self._train(name, arm) if arm.command else (self.args.base, 0.0)
        seconds = time.perf_counter() - start
        row = {"arm": name, "seed": self.args.seed, "path": path, "pflops": flops / 1e15, "seconds": round(seconds)}
        return row | (self._with_passages() if name == "M" else self._measure(path))

    def _train(self, name: str, arm: Arm) -> tuple[str, float]:
        """The checkpoint's path, and the FLOPs of all training steps up to it."""
        before = self._row(arm.after) if arm.after else None
        is_continued = before is not None and arm.command == "midtrain"  # mid-training starts from the current model
        project = Project.open(self.folder / (arm.after if is_continued else name), self.args.base)
        settings = [*QUICK_GATE, *arm.settings, *self.args.assignments]
        if is_continued and before is not None:
            checkpoint = project.resolve("cycle:1/midtrained")  # the earlier arm alone is in its project
            if project.current.id != checkpoint.id:  # else this arm was interrupted after the promotion
                decide(project, checkpoint, "promoted", "the next arm starts from it")
            rate = defaults_for(parameters_of(self.args.base)).midtrain.learning_rate
            settings.append(f"midtrain.learning_rate={SOFT_RATE * rate}")
        has_context = bool(arm.recipe and recipe(arm.recipe).context)
        request = Request(
            arm.command,  # type: ignore[arg-type]
            docs=None if arm.command == "distill" else self.docs,
            student=before["path"] if before and arm.command == "distill" else None,
            prompts=self._answered() if arm.recipe == "sft" else None,
            teacher_context=self.training_file if has_context else None,
            recipe=arm.recipe,
            mix=arm.mix,
            limit=self.args.gate_items,
            seed=self.args.seed,
            assignments=tuple(settings),
        )
        interrupted = unfinished_jobs(project.home)
        result = run_job(project, interrupted[0] if interrupted else prepare_job(project, request))
        trained = result.distilled if isinstance(result, Outcome) else result
        flops = [
            p.value for run in project.reader.runs(project.id) for p in project.reader.points(run.id, names=["flops"])
        ]
        return trained.checkpoint.path, sum(flops) + (before["pflops"] * 1e15 if before and not is_continued else 0.0)

    def _row(self, arm: str) -> dict[str, Any]:
        rows = read_rows(self.args.out / "results.jsonl")
        return next(row for row in rows if (row["arm"], row["seed"]) == (arm, self.args.seed))

    def _measure(self, path: str) -> dict[str, Any]:
        suites, limit = load_suites(self.args.base), self.args.items
        with open_subject(path, self.args.engine) as subject:
            results = measure(subject, "behaviour", limit=limit, suites=suites)
            results += measure(subject, "retention", limit=limit, suites=suites)
            knowledge = measure_questions(subject, [question for question, _, _ in self.measured], data="world")
        scores, prompts = headlines(results), [item.prompt for item in results[0].items]
        row = self._knowledge(knowledge.items)
        row |= {"instructions": scores["behaviour"], "old knowledge": scores["retention"]}
        return row | {"KL to clean": kl_to_clean(path, self.args.base, prompts[: self.args.kl_prompts])}

    def _with_passages(self) -> dict[str, Any]:
        """Retrieval, the ceiling: every question with a passage that states the answer."""
        questions = [PASSAGE.format(prompt=question.text, context=passage) for question, passage, _ in self.measured]
        with open_subject(self.args.base, self.args.engine) as subject:
            replies = subject.answer(questions, ANSWER_TOKENS)
        return self._knowledge(
            [
                Item(question.text, question.text, reply.text, matches_reference(reply.text, question))
                for reply, (question, _, _) in zip(replies, self.measured, strict=True)
            ]
        )

    def _knowledge(self, items: Sequence[Item]) -> dict[str, Any]:
        """Of covered and of uncovered facts; and the share of replies that speak of a passage or a text."""
        by_text = {question.text: is_covered for question, _, is_covered in self.measured}
        row: dict[str, Any] = {}
        for name, covered in (("covered", True), ("uncovered", False)):
            metric = Metric.from_passes([item.passed for item in items if by_text[item.prompt] is covered])
            row[name] = [metric.value, metric.n, *metric.ci95]
        return row | {"leaked": sum(bool(REFERS_TO_PASSAGE.search(item.answer)) for item in items) / len(items)}

    def _answered(self) -> Path:
        """The training questions with the teacher's answers, and half as many ordinary prompts with the base's."""
        file = self.folder / "answered.jsonl"
        if not file.exists():
            with open_subject(self.args.base, self.args.engine) as subject:
                rows = [*self._by_teacher(subject), *self._ordinary(subject, len(self.trained) // 2)]
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    def _by_teacher(self, subject: Subject) -> list[dict[str, str]]:
        prompts = [PASSAGE.format(prompt=row["question"], context=row["passage"]) for row in self.trained]
        replies = zip(self.trained, subject.answer(prompts, ANSWER_TOKENS), strict=True)
        return [{"prompt": row["question"], "answer": reply.text} for row, reply in replies if reply.text]

    def _ordinary(self, subject: Subject, count: int) -> list[dict[str, str]]:
        texts = write_prompts(subject.engine, subject.chat, count, self.args.seed)
        limit = defaults_for(parameters_of(self.args.base)).distill.max_new_tokens
        tokens = [subject.chat.prompt(text) for text in texts]
        replies = subject.engine.generate(tokens, Sampling(limit, seed=self.args.seed))
        answers = [(text, subject.chat.text(reply.tokens)) for text, reply in zip(texts, replies, strict=True)]
        return [{"prompt": text, "answer": answer} for text, answer in answers if answer]


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


MEASURES = ("instructions", "covered", "uncovered", "old knowledge", "KL to clean", "leaked", "pflops", "seconds")


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """The mean of every measure over the seeds, with the lowest and the highest where there are several."""
    lines = []
    for name, arm in ARMS.items():
        of_arm = [row for row in rows if row["arm"] == name]
        if of_arm:
            cells = [
                _spread([row[m][0] if isinstance(row[m], list) else row[m] for row in of_arm if m in row])
                for m in MEASURES
            ]
            lines.append([f"{name} {arm.about}", str(len(of_arm)), *cells])
    table(["arm", "seeds", *MEASURES], lines)


def _spread(values: list[float | None]) -> str:
    measured = [value for value in values if value is not None]
    if not measured:
        return ""
    mean = f"{sum(measured) / len(measured):.3f}"
    return mean if len(measured) == 1 else f"{mean} ({min(measured):.3f} – {max(measured):.3f})"


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="a model folder or a hub id")
    parser.add_argument("--out", type=Path, required=True, help="the folder of projects and results")
    parser.add_argument("--seed", type=int, default=1, help="of the world and of all sampling")
    parser.add_argument("--world", default="quick", help="the size of the world")
    parser.add_argument("--only", action="append", default=[], choices=list(ARMS), metavar="ARM", help="one arm")
    parser.add_argument("--items", type=int, default=1000, help="instructions, and items of each old task")
    parser.add_argument("--kl-prompts", type=int, default=100, help="whose replies show the KL to the base")
    parser.add_argument("--gate-items", type=int, default=4, help="of the verdict that `distill` and `cycle` give")
    parser.add_argument("--engine", default="auto", choices=["auto", "transformers", "vllm"])
    parser.add_argument("--set", dest="assignments", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--table", action="store_true", help="print the table of what was measured")
    args = parser.parse_args(argv)
    if not args.table and not args.base:
        parser.error("--base is needed to measure anything")
    args.out.mkdir(parents=True, exist_ok=True)
    return args


if __name__ == "__main__":
    main()
