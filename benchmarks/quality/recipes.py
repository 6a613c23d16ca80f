"""Every recipe from the same damaged model, side by side: what came back, what was kept, what it cost.

    python -m benchmarks.quality.recipes [--steps 20] [--items 400] [--seed 1]

The built-in base reads a new world's documents, which costs it instruction following; then each recipe has the same
number of steps of the same number of rows. Prompts are the base's own, except where a recipe cannot do without: SFT
learns from the lab's conversations, GRPO is rewarded by the instruction checkers on the lab's training prompts. A
reward tells much less a step than a teacher does, so recipes that have nothing else take REWARD_STEPS times as many.

Beside them, what costs nothing (weights moved back towards the clean model), what prevents instead of mending
(documents with the base's own answers among them), and the free move followed by OPD.
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
from pipelines.models import device
from pipelines.setting_sources import parse_assignments
from pipelines.settings import apply_overrides, defaults_for
from pipelines.synthetic.prompts import as_prompts, write_prompts
from recovery.batch import Sample
from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE, instruction_tasks, make_world, own_world
from recovery.lab.chat.conversations import conversations
from recovery.models.interpolation import interpolate
from recovery.models.students import Student, load_student, parameters_of, save_student
from recovery.recipes import RECIPES, objective_of, recipe, signal_of
from recovery.states import Conversations, Documents, FixedRows, Mixture, Prompt, Rollouts, States
from recovery.teachers import FrozenTeacher
from recovery.train import Plan, train

DEVICE = device()
REWARD_STEPS, REWARD_RATE = 5, 0.4  # times the steps, and times the rate, of the others
ROOM = 480  # tokens for a reply, where long ones are asked for
SIFTED = 30  # held-out tasks are looked through for each with a long answer
REPLAY = 0.3  # of the rows, in mid-training with the base's own answers
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
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--base", default=str(BASE))
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--items", type=int, default=400, help="held-out instruction prompts a measurement")
    options.add_argument(
        "--longer-than", type=int, default=0, metavar="TOKENS", help="only items whose right answer is longer than this"
    )
    options.add_argument("--seed", type=int, default=1, help="of the world and of every draw")
    options.add_argument("--world", default="quick", help="the size of the new world")
    options.add_argument("--only", default=",".join(NAMES), help="recipes, with commas")
    options.add_argument("--set", dest="dotted", action="append", default=[], metavar="NAME=VALUE")
    asked = options.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(asked, Path(folder))
        bench.row("clean", load_student(asked.base, device=DEVICE), 0.0, 0.0)
        bench.row("mid-trained", load_student(str(bench.damaged), device=DEVICE), bench.seconds, bench.flops)
        names = asked.only.split(",")
        if "replay" in names:
            bench.answer_rows()
        for share in (0.3, 0.5, 0.7):
            back = interpolate(load_student(str(bench.damaged), device=DEVICE), asked.base, share)
            bench.row(f"{share} of the way back in weights", back, 0.0, 0.0)
            if "opd" in names and share < 0.7:
                bench.run("opd", back, f"{share} of the way back, then opd")
        for name in names:
            if name != "replay":
                bench.run(name)
        if "opd" in names:
            bench.run("opd", label="opd on the generator's prompts", prompts=bench.generated())
        return bench.followed


class Bench:
    def __init__(self, asked: argparse.Namespace, folder: Path):
        self.asked, self.folder = asked, folder
        self.followed: dict[str, Metric] = {}  # instructions, by the row's name
        self.settings = apply_overrides(defaults_for(parameters_of(asked.base)), parse_assignments(asked.dotted))
        self.teacher = FrozenTeacher(asked.base, device=DEVICE)
        base = load_student(asked.base, frozen=True, device=DEVICE)
        self.chat = base.chat
        own = write_prompts(TransformersEngine(base), base.chat, self.settings.distill.prompts, asked.seed)
        self.prompts = as_prompts(own, base.chat)
        self.tasks = self._rewarded()
        self.items = self._items()
        make_world(9000 + asked.seed, asked.world).write(folder / "world")
        self.questions = read_questions(folder / "world" / "questions.jsonl")
        self.damaged = self._midtrain()
        print(f"{'':34} instructions    new world   own world   seconds   PFLOPs", flush=True)

    def run(
        self, name: str, student: Student | None = None, label: str = "", prompts: list[Prompt] | None = None
    ) -> None:
        chosen = recipe(name)
        student = student or load_student(str(self.damaged), device=DEVICE)
        rate, steps = self.settings.distill.learning_rate, self.asked.steps
        if chosen.teacher_weight == 0:
            rate, steps = rate * REWARD_RATE, steps * REWARD_STEPS
        plan = Plan(steps, rate, warmup=min(5, steps // 5), decay="linear", bf16=self.settings.bf16)
        started, flops = time.perf_counter(), 0.0
        states = self._states(name, student, prompts or self.prompts)
        signal = signal_of(chosen, self.teacher if chosen.needs_teacher else None, self._reward)
        for record in train(student, states, signal, objective_of(chosen), plan):
            flops += record.flops
        self.row(label or name, student, time.perf_counter() - started, flops)

    def answer_rows(self) -> None:
        """Mid-training once more, a share of its rows the base's own answers to its own prompts."""
        wanted = self.settings.midtrain
        rows = round(REPLAY * wanted.rows)
        student = load_student(self.asked.base, device=DEVICE)
        answers = FixedRows(self._answers(soft_labels=True), rows=rows, seed=self.asked.seed)
        states = Mixture(self._documents(wanted.rows - rows), answers)
        self._read(student, states)
        self.row(f"documents with {REPLAY} replay", student, self.seconds, self.flops)

    def row(self, name: str, student: Student, seconds: float, flops: float) -> None:
        subject = Subject(TransformersEngine(student), student.chat)
        room = ROOM if self.asked.longer_than else lab.WRITING_TOKENS
        self.followed[name] = followed = measure_ifeval(subject, self.items, data="lab", max_new_tokens=room).headline
        known = measure_questions(subject, self.questions, data="new world").metrics["match"]
        old = lab.measure_own_world(subject, 200).metrics["match"]
        low, high = followed.ci95
        interval = f"[{low:.2f}, {high:.2f}]"
        cost = f"{seconds:9.0f} {flops / 1e15:8.3f}"
        print(f"{name:34} {followed.value:.3f} {interval}  {known.value:.3f}       {old.value:.3f} {cost}", flush=True)

    def generated(self) -> list[Prompt]:
        """What nobody has but the lab: first turns of the conversations that the base was made from, as many."""
        talks = islice(conversations(own_world(), f"prompts/{self.asked.seed}"), len(self.prompts))
        return as_prompts([next(m["content"] for m in talk if m["role"] == "user") for talk in talks], self.chat)

    def _states(self, name: str, student: Student, prompts: list[Prompt]) -> States:
        """The recipe's own share of rollouts; the rest from the data it names."""
        chosen, wanted, seed = RECIPES[name], self.settings.distill, self.asked.seed
        prompts = as_prompts(self.tasks, self.chat) if chosen.teacher_weight < 1 else prompts
        own = round(chosen.on_policy_fraction * wanted.rows)
        parts: list[States] = []
        if own:
            engine = TransformersEngine(student)
            room = wanted.max_new_tokens
            parts.append(Rollouts(prompts, engine, rows=own, group=chosen.group, max_new_tokens=room, seed=seed))
        if own < wanted.rows and chosen.data == "conversations":
            talks = conversations(own_world(), f"benchmark/{seed}")
            chats: list[Any] = [next(talks) for _ in range(wanted.rows * self.asked.steps)]
            parts.append(Conversations(chats, self.chat, rows=wanted.rows - own, seed=seed))
        elif own < wanted.rows:
            parts.append(FixedRows(self._answers(), rows=wanted.rows - own, seed=seed))
        return Mixture(*parts)

    def _answers(self, soft_labels: bool = False) -> list[Sample]:
        engine = TransformersEngine(load_student(self.asked.base, frozen=True, device=DEVICE))
        sampling = Sampling(self.settings.distill.max_new_tokens, seed=self.asked.seed)
        written = engine.generate([p.tokens for p in self.prompts], sampling)
        return [p.with_reply(g.tokens, soft_labels=soft_labels) for p, g in zip(self.prompts, written, strict=True)]

    def _items(self) -> list[Instructions]:
        """Held-out prompts; where long answers are asked for, those whose right answer is one."""
        if not self.asked.longer_than:
            return lab.instruction_prompts(self.asked.items)
        tasks = instruction_tasks(lab.SEED, self.asked.items * SIFTED, "heldout")
        sizes = self.chat.tokenizer([task.answer for task in tasks], add_special_tokens=False)["input_ids"]
        long = [t for t, tokens in zip(tasks, sizes, strict=True) if len(tokens) > self.asked.longer_than]
        found = [parse_prompt((str(task.key), asdict(task))) for task in long[: self.asked.items]]
        print(f"{len(found)} items whose right answers have more than {self.asked.longer_than} tokens", flush=True)
        return found

    def _rewarded(self) -> dict[str, Instructions]:
        tasks = [parse_prompt((str(t.key), asdict(t))) for t in instruction_tasks(self.asked.seed, 600, "train")]
        return {task.text: task for task in tasks}

    def _reward(self, sequence: Sample) -> float:
        task = self.tasks[sequence.prompt or ""]
        reply = [token for token, taught in zip(sequence.tokens, sequence.targets, strict=True) if taught]
        verdicts = judge(task, Answer(self.chat.text(reply), not sequence.truncated)).verdicts["strict"]
        return sum(verdicts) / len(verdicts)

    def _midtrain(self) -> Path:
        student = load_student(self.asked.base, device=DEVICE)
        self._read(student, self._documents(self.settings.midtrain.rows))
        save_student(student, self.folder / "damaged", {})
        return self.folder / "damaged"

    def _documents(self, rows: int) -> Documents:
        wanted, tokenizer = self.settings.midtrain, self.chat.tokenizer
        texts = [p.read_text() for p in sorted((self.folder / "world" / "docs").iterdir())]
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        return Documents(ids, tokenizer.pad_token_id, window=wanted.window, rows=rows, seed=self.asked.seed)

    def _read(self, student: Student, states: States) -> None:
        """All documents, as often as the settings say; more steps, where some rows are not documents."""
        wanted = self.settings.midtrain
        documents = states.parts[0] if isinstance(states, Mixture) else states
        assert isinstance(documents, Documents)
        steps = round(wanted.epochs * len(documents.windows) / documents.rows)
        plan = Plan(steps, wanted.learning_rate, warmup=10, decay="linear", bf16=self.settings.bf16)
        started, chosen = time.perf_counter(), recipe("midtrain")
        signal = signal_of(chosen, self.teacher if wanted.soft_labels else None)
        records = list(train(student, states, signal, objective_of(chosen), plan))
        self.seconds, self.flops = time.perf_counter() - started, sum(r.flops for r in records)


if __name__ == "__main__":
    main()
