"""Does the KL to the clean base on the new task predict forgetting, as "RL's Razor" (2025) says? Tested on the lab.

    python -m benchmarks.quality.kl_predicts_forgetting [--steps 60] [--items 120] [--seed 1]

The built-in base is mid-trained on a new world at three learning rates, and at the highest one also with its own
answers in the mix. Each model is measured during mid-training, at its end, and after ten steps of on-policy
distillation: forgetting, the mean of (clean − now) over instructions, refusals, arithmetic and the base's own world;
and the KL per token between the two models on the new world's right answers, on its documents, and on the model's own
replies to the base's prompts. Prints how well each KL ranks the forgetting (Spearman), over all measurements and over
those at the end of a training only, as the measurements within one training are not independent.
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
from pipelines.model_loading import device
from pipelines.settings.defaults import defaults_for
from pipelines.synthetic.answers import answer_rows, sample_answers
from pipelines.synthetic.prompts import as_prompts, write_prompts
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE, make_world
from recovery.models.students import Student, load_student, parameters_of
from recovery.recipes import objective_of, recipe, signal_of
from recovery.samples import Sample
from recovery.states import Documents, Mixture, Rollouts, States
from recovery.teachers import FrozenTeacher
from recovery.train import Plan, train

TRAININGS = ((2e-3, 0.0), (1e-3, 0.0), (5e-4, 0.0), (2e-3, 0.3))  # learning rate, share of the base's own answers
TEXTS = ("right answers", "documents", "own replies")
DIRECTIONS = {"kl_from_clean": "clean ‖ now", "kl_to_clean": "now ‖ clean"}
DISTILL_STEPS = 10


@dataclass(frozen=True)
class Measurement:
    name: str
    forgetting: float
    knowledge: float  # of the new world
    kls: dict[tuple[str, str], float]  # by (text, direction)
    is_final: bool  # at the end of a training


def main(arguments: list[str] | None = None) -> list[Measurement]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=str(BASE))
    parser.add_argument("--steps", type=int, default=60, help="of each mid-training")
    parser.add_argument("--items", type=int, default=120, help="at most, per task")
    parser.add_argument("--prompts", type=int, default=320, help="written by the base")
    parser.add_argument("--seed", type=int, default=1, help="of the world and of all sampling")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        measurements = list(_Bench(args, Path(folder)).measurements())
    kinds = [(text, direction) for text in TEXTS for direction in DIRECTIONS]
    head = ["", "forgetting", "knowledge", *(f"{text}, {DIRECTIONS[direction]}" for text, direction in kinds)]
    rows = [
        [m.name, f"{m.forgetting:.3f}", f"{m.knowledge:.3f}", *(f"{m.kls[kind]:.4f}" for kind in kinds)]
        for m in measurements
    ]
    print()
    table(head, rows)
    final = [m for m in measurements if m.is_final]
    print(
        f"\nSpearman's correlation of each KL with forgetting: all {len(measurements)}, and the {len(final)} final ones"
    )
    for text, direction in kinds:
        correlations = [
            forgetting_correlation([m.kls[text, direction] for m in group], [m.forgetting for m in group])
            for group in (measurements, final)
        ]
        values = "   ".join(f"{correlation:+.2f} (p = {p:.3f})" for correlation, p in correlations)
        print(f"  {text + ', ' + DIRECTIONS[direction]:28} {values}")
    return measurements


class _Bench:
    def __init__(self, args: argparse.Namespace, folder: Path):
        self.args, self.settings = args, defaults_for(parameters_of(args.base))
        self.clean = load_student(args.base, frozen=True, device=device())
        self.teacher = FrozenTeacher(args.base, device=device())
        make_world(7000 + args.seed, "quick").write(folder / "world")
        self.texts = [p.read_text() for p in sorted((folder / "world" / "docs").iterdir())]
        self.questions: list[Question] = read_questions(folder / "world" / "questions.jsonl")[: args.items]
        engine = TransformersEngine(self.clean)
        self.prompts = write_prompts(engine, self.clean.chat, args.prompts, args.seed)
        max_new_tokens = self.settings.distill.max_new_tokens
        self.answers = sample_answers(
            engine, self.clean.chat, self.prompts, folder, "base", max_new_tokens=max_new_tokens
        )
        self.clean_results = self._tasks(self.clean)

    def measurements(self) -> Iterator[Measurement]:
        for rate, answers in TRAININGS:
            student = load_student(self.args.base, device=device())
            name = f"{rate:g}" + (f", {answers} answers" if answers else "")
            steps = {self.args.steps // 4: "a quarter", self.args.steps // 2: "half", self.args.steps: "all"}
            for step in self._midtrain(student, rate, answers):
                if step in steps:
                    yield self._measure(student, f"{name}, {steps[step]}", is_final=step == self.args.steps)
            self._distil(student)
            yield self._measure(student, f"{name}, distilled", is_final=True)

    def _midtrain(self, student: Student, rate: float, answers: float) -> Iterator[int]:
        settings, tokenizer, seed = self.settings.midtrain, student.chat.tokenizer, self.args.seed
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in self.texts]
        parts: list[States] = [
            Documents(ids, student.chat.separator, window=settings.window, rows=settings.step_rows, seed=seed)
        ]
        if answers:
            parts.append(answer_rows(self.answers, answers, settings.step_rows * settings.window, seed=seed))
        plan, midtrain = Plan(self.args.steps, rate, warmup=min(10, self.args.steps // 4)), recipe("midtrain")
        for record in train(student, Mixture(*parts), signal_of(midtrain), objective_of(midtrain), plan):
            yield record.step + 1

    def _distil(self, student: Student) -> None:
        settings, opd = self.settings.distill, recipe("opd")
        states = Rollouts(
            as_prompts(self.prompts, student.chat),
            TransformersEngine(student),
            rows=settings.rows,
            max_new_tokens=settings.max_new_tokens,
            seed=self.args.seed,
        )
        plan = Plan(min(DISTILL_STEPS, self.args.steps), settings.learning_rate, warmup=2, decay="linear")
        for _ in train(student, states, signal_of(opd, self.teacher), objective_of(opd), plan):
            pass

    def _measure(self, student: Student, name: str, *, is_final: bool) -> Measurement:
        kls = {
            (text, direction): metric.value
            for text, rows in self._rows(student).items()
            for direction, metric in token_kl(student, self.clean, rows).items()
        }
        forgetting = measure_forgetting(self.clean_results, self._tasks(student)).forgetting
        subject = Subject(TransformersEngine(student), student.chat)
        knowledge = measure_questions(subject, self.questions, data="new world").headline.value
        print(f"{name}: forgetting {forgetting:.3f}, knowledge {knowledge:.3f}", flush=True)
        return Measurement(name, forgetting, knowledge, kls, is_final)

    def _rows(self, student: Student) -> dict[str, list[Sample]]:
        with transformers_engine(student) as engine:
            rollouts = sample_rollouts(engine, student, self.prompts[:64], 128, self.args.seed)
        chat = student.chat
        rows = (
            question_samples(chat, self.questions),
            passage_samples(chat, self.texts[:64]),
            map(reply_sample, rollouts),
        )
        return {text: list(samples) for text, samples in zip(TEXTS, rows, strict=True)}

    def _tasks(self, student: Student) -> list[Result]:
        subject, items = Subject(TransformersEngine(student), student.chat), self.args.items
        return [*lab.behaviour(subject, items, items, "all"), *lab.retention(subject, items, items, "all")]


if __name__ == "__main__":
    main()
