"""Does the KL to the clean base on the new task foretell forgetting? "RL's Razor" (2025) says so; here on the lab.

    python -m benchmarks.quality.kl_predicts_forgetting [--steps 60] [--items 120] [--seed 1]

The built-in base reads a new world in several ways: at three rates, and at the boldest with its own answers among the
documents. Each is looked at on the way and at the end, and once more after ten steps of on-policy distillation. At
every look: forgetting, the mean of (clean − now) over instructions, refusals, arithmetic and the base's own world; and
the KL a token between the two models on the new world's right answers, on its documents, and on what the model itself
writes to prompts of the base. Printed: how well each KL ranks the forgetting (Spearman), over all looks, and over the
ends of the readings and what was distilled from them; the looks of one reading are one after the other, not apart.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import table
from evals.drift.rollouts import passage_samples, question_samples, reply_sample, sample_rollouts, transformers_engine
from evals.drift.token_kl import token_kl
from evals.results import Result
from evals.stats.forgetting import forgetting_correlation, measure_forgetting
from evals.subject import Subject
from evals.suites import lab
from evals.suites.knowledge import Question, measure_questions, read_questions
from pipelines.models import device
from pipelines.settings import defaults_for
from pipelines.synthetic.answers import answer_rows, sample_answers
from pipelines.synthetic.prompts import as_prompts, write_prompts
from recovery.batch import Sample
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE, make_world
from recovery.models.students import Student, load_student, parameters_of
from recovery.recipes import objective_of, recipe, signal_of
from recovery.states import Documents, Mixture, Rollouts, States
from recovery.teachers import FrozenTeacher
from recovery.train import Plan, train

READINGS = ((2e-3, 0.0), (1e-3, 0.0), (5e-4, 0.0), (2e-3, 0.3))  # rate, share of the base's own answers
WHERE = ("right answers", "documents", "own replies")
WAYS = {"kl_from_clean": "clean ‖ now", "kl_to_clean": "now ‖ clean"}
DISTILLED = 10  # steps


@dataclass(frozen=True)
class Look:
    name: str
    forgotten: float
    known: float  # of the new world
    kls: dict[tuple[str, str], float]  # (where, way)
    on_the_way: bool


def main(arguments: list[str] | None = None) -> list[Look]:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--base", default=str(BASE))
    options.add_argument("--steps", type=int, default=60, help="of each reading")
    options.add_argument("--items", type=int, default=120, help="at most, of each task")
    options.add_argument("--prompts", type=int, default=320, help="that the base writes, to distil on and to replay")
    options.add_argument("--seed", type=int, default=1, help="of the world and of every draw")
    asked = options.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        looks = list(_Bench(asked, Path(folder)).looks())
    kinds = [(where, way) for where in WHERE for way in WAYS]
    head = ["", "forgotten", "knows", *(f"{where}, {WAYS[way]}" for where, way in kinds)]
    rows = [
        [look.name, f"{look.forgotten:.3f}", f"{look.known:.3f}", *(f"{look.kls[kind]:.4f}" for kind in kinds)]
        for look in looks
    ]
    print()
    table(head, rows)
    ends = [look for look in looks if not look.on_the_way]
    print(
        f"\nSpearman's correlation of each KL with what was forgotten, all {len(looks)} looks and the {len(ends)} apart"
    )
    for where, way in kinds:
        found = [
            forgetting_correlation([k.kls[where, way] for k in of], [k.forgotten for k in of]) for of in (looks, ends)
        ]
        told = "   ".join(f"{correlation:+.2f} (p = {p:.3f})" for correlation, p in found)
        print(f"  {where + ', ' + WAYS[way]:28} {told}")
    return looks


class _Bench:
    def __init__(self, asked: argparse.Namespace, folder: Path):
        self.asked, self.settings = asked, defaults_for(parameters_of(asked.base))
        self.clean = load_student(asked.base, frozen=True, device=device())
        self.teacher = FrozenTeacher(asked.base, device=device())
        make_world(7000 + asked.seed, "quick").write(folder / "world")
        self.texts = [p.read_text() for p in sorted((folder / "world" / "docs").iterdir())]
        self.questions: list[Question] = read_questions(folder / "world" / "questions.jsonl")[: asked.items]
        engine = TransformersEngine(self.clean)
        self.prompts = write_prompts(engine, self.clean.chat, asked.prompts, asked.seed)
        room = self.settings.distill.max_new_tokens
        self.answers = sample_answers(engine, self.clean.chat, self.prompts, folder, "base", max_new_tokens=room)
        self.before = self._tasks(self.clean)

    def looks(self) -> Iterator[Look]:
        for rate, replay in READINGS:
            student = load_student(self.asked.base, device=device())
            name = f"{rate:g}" + (f", {replay} replay" if replay else "")
            marks = {self.asked.steps // 4: "a quarter", self.asked.steps // 2: "half", self.asked.steps: "all"}
            for step in self._read(student, rate, replay):
                if step in marks:
                    yield self._look(student, f"{name}, {marks[step]}", on_the_way=step < self.asked.steps)
            self._distil(student)
            yield self._look(student, f"{name}, distilled", on_the_way=False)

    def _read(self, student: Student, rate: float, replay: float) -> Iterator[int]:
        wanted, tokenizer, seed = self.settings.midtrain, student.chat.tokenizer, self.asked.seed
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in self.texts]
        parts: list[States] = [
            Documents(ids, tokenizer.pad_token_id, window=wanted.window, rows=wanted.rows, seed=seed)
        ]
        if replay:
            parts.append(answer_rows(self.answers, replay, wanted.rows * wanted.window, seed=seed))
        plan, chosen = Plan(self.asked.steps, rate, warmup=min(10, self.asked.steps // 4)), recipe("midtrain")
        for record in train(student, Mixture(*parts), signal_of(chosen), objective_of(chosen), plan):
            yield record.step + 1

    def _distil(self, student: Student) -> None:
        wanted, chosen = self.settings.distill, recipe("opd")
        states = Rollouts(
            as_prompts(self.prompts, student.chat),
            TransformersEngine(student),
            rows=wanted.rows,
            max_new_tokens=wanted.max_new_tokens,
            seed=self.asked.seed,
        )
        plan = Plan(min(DISTILLED, self.asked.steps), wanted.learning_rate, warmup=2, decay="linear")
        for _ in train(student, states, signal_of(chosen, self.teacher), objective_of(chosen), plan):
            pass

    def _look(self, student: Student, name: str, *, on_the_way: bool) -> Look:
        kls = {
            (where, way): metric.value
            for where, rows in self._states(student).items()
            for way, metric in token_kl(student, self.clean, rows).items()
        }
        lost = measure_forgetting(self.before, self._tasks(student)).forgetting
        subject = Subject(TransformersEngine(student), student.chat)
        known = measure_questions(subject, self.questions, data="new world").headline.value
        print(f"{name}: forgotten {lost:.3f}, knows {known:.3f}", flush=True)
        return Look(name, lost, known, kls, on_the_way)

    def _states(self, student: Student) -> dict[str, list[Sample]]:
        with transformers_engine(student) as engine:
            written = sample_rollouts(engine, student, self.prompts[:64], 128, self.asked.seed)
        chat = student.chat
        rows = (
            question_samples(chat, self.questions),
            passage_samples(chat, self.texts[:64]),
            map(reply_sample, written),
        )
        return {where: list(of) for where, of in zip(WHERE, rows, strict=True)}

    def _tasks(self, student: Student) -> list[Result]:
        subject, items = Subject(TransformersEngine(student), student.chat), self.asked.items
        return [*lab.behaviour(subject, items, items, "all"), *lab.retention(subject, items, items, "all")]


if __name__ == "__main__":
    main()
