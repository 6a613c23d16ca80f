"""All recipes on the same damaged model: instruction following recovered, knowledge retained, cost.

    python -m benchmarks.quality.recipes [--steps 20] [--items 400] [--seed 1]

The built-in base is mid-trained on a new world's documents and loses instruction following; then each recipe takes the
same number of steps with the same number of rows. Prompts are the base's own, except where a recipe needs others: SFT
trains on the lab's conversations, GRPO gets its reward from the instruction checkers on the lab's training prompts. A
reward carries less information per step than a teacher, so recipes with a reward alone take REWARD_STEPS times as many.

For comparison: weights interpolated towards the clean model (no training), the same followed by OPD, and mid-training
with the base's own answers in the mix (prevention instead of recovery).
"""

import argparse
import tempfile
import time
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from evals.results import Metric
from evals.subject import Answer, Subject
from evals.suites import lab
from evals.suites.instruction_following import Prompt as Instructions
from evals.suites.instruction_following import judge, measure_ifeval, parse_prompt
from evals.suites.knowledge import measure_questions, read_questions
from pipelines.model_loading import device
from pipelines.settings.defaults import defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.settings.sources import parse_assignments
from pipelines.synthetic.prompts import as_prompts, write_prompts
from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE, instruction_tasks, make_world, own_world
from recovery.lab.chat.conversations import conversations
from recovery.models.interpolation import interpolate
from recovery.models.students import Student, load_student, parameters_of, save_student
from recovery.recipes import RECIPES, objective_of, recipe, signal_of
from recovery.samples import Sample
from recovery.states import Conversations, Documents, FixedRows, Mixture, Prompt, Rollouts, States
from recovery.teachers import FrozenTeacher
from recovery.train import Plan, train

DEVICE = device()
REWARD_STEPS, REWARD_RATE = 5, 0.4  # factors on the steps and the learning rate of recipes with a reward alone
LONG_REPLY_TOKENS = 480  # the limit of a reply with --longer-than
CANDIDATES = 30  # held-out tasks generated for each item with a long answer
ANSWERS = 0.3  # share of the rows that are the base's own answers, in mid-training with answers
NAMES = (
    "replay",
    "sft",
    "dft",
    "sft-anchored",
    "offpolicy",
    "offpolicy-kl",
    "opd",
    "opd-sampled",
    "gkd",
    "grpo",
    "teacher-reward",
)


def main(argv: list[str] | None = None) -> dict[str, Metric]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=str(BASE))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--items", type=int, default=400, help="held-out instruction prompts per measurement")
    parser.add_argument(
        "--longer-than", type=int, default=0, metavar="TOKENS", help="only items whose right answer is longer than this"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the world and of all sampling")
    parser.add_argument("--world", default="quick", help="the size of the new world")
    parser.add_argument("--only", default=",".join(NAMES), help="recipes, separated by commas")
    parser.add_argument("--set", dest="assignments", action="append", default=[], metavar="NAME=VALUE")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        bench.row("clean", load_student(args.base, device=DEVICE), 0.0, 0.0)
        bench.row("mid-trained", load_student(str(bench.damaged), device=DEVICE), bench.seconds, bench.flops)
        names = args.only.split(",")
        if "replay" in names:
            bench.midtrain_with_answers()
        for share in (0.3, 0.5, 0.7):
            interpolated = interpolate(load_student(str(bench.damaged), device=DEVICE), args.base, share)
            bench.row(f"{share} towards the clean weights", interpolated, 0.0, 0.0)
            if "opd" in names and share < 0.7:
                bench.run("opd", interpolated, f"{share} towards the clean weights, then opd")
        for name in names:
            if name != "replay":
                bench.run(name)
        if "opd" in names:
            bench.run("opd", label="opd on the generator's prompts", prompts=bench.generated())
        return bench.instructions


class Bench:
    def __init__(self, args: argparse.Namespace, folder: Path):
        self.args, self.folder = args, folder
        self.instructions: dict[str, Metric] = {}  # instruction following, by the name of the row
        self.settings = apply_overrides(defaults_for(parameters_of(args.base)), parse_assignments(args.assignments))
        self.teacher = FrozenTeacher(args.base, device=DEVICE)
        base = load_student(args.base, frozen=True, device=DEVICE)
        self.chat = base.chat
        prompts = write_prompts(TransformersEngine(base), base.chat, self.settings.distill.prompts, args.seed)
        self.prompts = as_prompts(prompts, base.chat)
        self.tasks = self._reward_tasks()
        self.items = self._items()
        make_world(9000 + args.seed, args.world).write(folder / "world")
        self.questions = read_questions(folder / "world" / "questions.jsonl")
        self.damaged = self._midtrain()
        print(f"{'':34} instructions    new world   own world   seconds   PFLOPs", flush=True)

    def run(
        self, name: str, student: Student | None = None, label: str = "", prompts: list[Prompt] | None = None
    ) -> None:
        chosen = recipe(name)
        student = student or load_student(str(self.damaged), device=DEVICE)
        rate, steps = self.settings.distill.learning_rate, self.args.steps
        if chosen.teacher_weight == 0:
            rate, steps = rate * REWARD_RATE, steps * REWARD_STEPS
        plan = Plan(steps, rate, warmup=min(5, steps // 5), decay="linear", bf16=self.settings.bf16)
        start, flops = time.perf_counter(), 0.0
        states = self._states(name, student, prompts or self.prompts)
        signal = signal_of(chosen, self.teacher if chosen.needs_teacher else None, self._reward)
        for record in train(student, states, signal, objective_of(chosen), plan):
            flops += record.flops
        self.row(label or name, student, time.perf_counter() - start, flops)

    def midtrain_with_answers(self) -> None:
        """Repeat mid-training with the base's own answers as a share of the rows."""
        settings = self.settings.midtrain
        rows = round(ANSWERS * settings.step_rows)
        student = load_student(self.args.base, device=DEVICE)
        answers = FixedRows(self._answers(soft_labels=True), rows=rows, seed=self.args.seed)
        states = Mixture(self._documents(settings.step_rows - rows), answers)
        self._train(student, states)
        self.row(f"documents with {ANSWERS} answers", student, self.seconds, self.flops)

    def row(self, name: str, student: Student, seconds: float, flops: float) -> None:
        subject = Subject(TransformersEngine(student), student.chat)
        max_new_tokens = LONG_REPLY_TOKENS if self.args.longer_than else lab.WRITING_TOKENS
        result = measure_ifeval(subject, self.items, data="lab", max_new_tokens=max_new_tokens)
        self.instructions[name] = instructions = result.headline
        new = measure_questions(subject, self.questions, data="new world").metrics["match"]
        old = lab.measure_own_world(subject, 200).metrics["match"]
        low, high = instructions.ci95
        interval, knowledge = f"[{low:.2f}, {high:.2f}]", f"{new.value:.3f}       {old.value:.3f}"
        cost = f"{seconds:9.0f} {flops / 1e15:8.3f}"
        print(f"{name:34} {instructions.value:.3f} {interval}  {knowledge} {cost}", flush=True)

    def generated(self) -> list[Prompt]:
        """As many prompts from the generator of the base's training data, which only the lab has."""
        talks = islice(conversations(own_world(), f"prompts/{self.args.seed}"), len(self.prompts))
        return as_prompts([next(m["content"] for m in talk if m["role"] == "user") for talk in talks], self.chat)

    def _states(self, name: str, student: Student, prompts: list[Prompt]) -> States:
        """The recipe's share of rollouts, and the rest from the data that it names."""
        chosen, settings, seed = RECIPES[name], self.settings.distill, self.args.seed
        prompts = as_prompts(self.tasks, self.chat) if chosen.teacher_weight < 1 else prompts
        on_policy = round(chosen.on_policy_fraction * settings.rows)
        parts: list[States] = []
        if on_policy:
            engine = TransformersEngine(student)
            limit = settings.max_new_tokens
            parts.append(Rollouts(prompts, engine, rows=on_policy, group=chosen.group, max_new_tokens=limit, seed=seed))
        if on_policy < settings.rows and chosen.data == "conversations":
            talks = conversations(own_world(), f"benchmark/{seed}")
            chats: list[Any] = [next(talks) for _ in range(settings.rows * self.args.steps)]
            parts.append(Conversations(chats, self.chat, rows=settings.rows - on_policy, seed=seed))
        elif on_policy < settings.rows:
            parts.append(FixedRows(self._answers(), rows=settings.rows - on_policy, seed=seed))
        return Mixture(*parts)

    def _answers(self, soft_labels: bool = False) -> list[Sample]:
        engine = TransformersEngine(load_student(self.args.base, frozen=True, device=DEVICE))
        sampling = Sampling(self.settings.distill.max_new_tokens, seed=self.args.seed)
        replies = engine.generate([p.tokens for p in self.prompts], sampling)
        return [p.with_reply(g.tokens, soft_labels=soft_labels) for p, g in zip(self.prompts, replies, strict=True)]

    def _items(self) -> list[Instructions]:
        """Held-out prompts; with --longer-than, those with a long right answer."""
        if not self.args.longer_than:
            return lab.instruction_prompts(self.args.items)
        tasks = instruction_tasks(lab.SEED, self.args.items * CANDIDATES, "heldout")
        sizes = self.chat.tokenizer([task.answer for task in tasks], add_special_tokens=False)["input_ids"]
        long = [t for t, tokens in zip(tasks, sizes, strict=True) if len(tokens) > self.args.longer_than]
        items = [parse_prompt((str(task.key), asdict(task))) for task in long[: self.args.items]]
        print(f"{len(items)} items whose right answers have more than {self.args.longer_than} tokens", flush=True)
        return items

    def _reward_tasks(self) -> dict[str, Instructions]:
        tasks = [parse_prompt((str(t.key), asdict(t))) for t in instruction_tasks(self.args.seed, 600, "train")]
        return {task.text: task for task in tasks}

    def _reward(self, sequence: Sample) -> float:
        task = self.tasks[sequence.prompt or ""]
        reply = [token for token, is_target in zip(sequence.tokens, sequence.targets, strict=True) if is_target]
        verdicts = judge(task, Answer(self.chat.text(reply), not sequence.truncated)).verdicts["strict"]
        return sum(verdicts) / len(verdicts)

    def _midtrain(self) -> Path:
        student = load_student(self.args.base, device=DEVICE)
        self._train(student, self._documents(self.settings.midtrain.step_rows))
        save_student(student, self.folder / "damaged", {})
        return self.folder / "damaged"

    def _documents(self, rows: int) -> Documents:
        settings, tokenizer = self.settings.midtrain, self.chat.tokenizer
        texts = [p.read_text() for p in sorted((self.folder / "world" / "docs").iterdir())]
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        return Documents(ids, self.chat.separator, window=settings.window, rows=rows, seed=self.args.seed)

    def _train(self, student: Student, states: States) -> None:
        """Mid-train for the epochs in the settings; rows that are not documents add steps."""
        settings = self.settings.midtrain
        documents = states.parts[0] if isinstance(states, Mixture) else states
        assert isinstance(documents, Documents)
        steps = settings.steps(len(documents.windows), documents.rows)
        plan = Plan(steps, settings.learning_rate, warmup=10, decay="linear", bf16=self.settings.bf16)
        start, midtrain = time.perf_counter(), recipe("midtrain")
        signal = signal_of(midtrain, self.teacher if settings.soft_labels else None)
        records = list(train(student, states, signal, objective_of(midtrain), plan))
        self.seconds, self.flops = time.perf_counter() - start, sum(r.flops for r in records)


if __name__ == "__main__":
    main()
