"""Ways to new knowledge without damage, on one real model: each with its four measures and what it cost.

    python -m benchmarks.quality.moves --base REF --data DIR --out DIR [--seed 1] [--only NAME …]
    python -m benchmarks.quality.moves --out DIR --table

The base reads the documents of an invented world alone. Some moves repair the model that this damages: they move
towards its weights, or distil. Others begin at the base and read the documents in another way. Repairs take
equal FLOPs: a recipe that needs more passes over a token takes fewer steps. Every move that is measured is a line of
OUT/results.jsonl, and a run goes on after the last of them. A row of the table is the mean over the seeds.

There is no chat vector among the moves: where the base is the chat model itself, it is the move towards the base.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import table
from benchmarks.quality.measure_model import add_measure_arguments, as_row, measure
from pipelines.model_loading import device, load_frozen, open_engine
from pipelines.settings.defaults import defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schedule import scheduled
from pipelines.settings.sources import parse_assignments
from pipelines.synthetic.answers import answer_rows
from pipelines.synthetic.prompts import as_prompts, write_prompts
from recovery.engines import Engine, Sampling
from recovery.lab import make_world
from recovery.models.adapters import Adapter
from recovery.models.interpolation import interpolate, merge
from recovery.models.precision import has_bfloat16
from recovery.models.students import Student, load_chat, load_student, parameters_of, save_student
from recovery.recipes import objective_of, recipe, signal_of
from recovery.samples import Sample
from recovery.states import Documents, FixedRows, Mixture, Prompt, Rollouts, States
from recovery.teachers import FrozenTeacher
from recovery.train import Plan, train

DAMAGED = "documents alone"
LORA = Adapter(rank=64)


@dataclass(frozen=True)
class Repair:
    """What follows on the documents: a move towards the base's weights, then a recipe with the documents beside it."""

    towards_clean: float = 0.0
    recipe: str = ""
    documents: bool = True  # read again beside the recipe's rows


@dataclass(frozen=True)
class Reading:
    """Another way to read the documents, from the base."""

    answers: float = 0.0  # of all tokens taught, the share that is the base's own answers, with soft labels
    lora: bool = False
    learning_rate: float = 1.0  # factor
    frozen: float = 0.0  # share of the layers, from below, that stay as they are
    l2: float = 0.0  # of the distance to the base's weights, the share taken back after a step at full learning rate


MOVES: dict[str, Repair | Reading] = {
    "clean": Repair(1.0),
    DAMAGED: Reading(),
    "0.1 towards the base": Repair(0.1),
    "0.3 towards the base": Repair(0.3),
    "0.5 towards the base": Repair(0.5),
    "0.7 towards the base": Repair(0.7),
    "0.9 towards the base": Repair(0.9),
    "off-policy KL beside the documents": Repair(recipe="offpolicy-kl"),
    "0.3 towards the base, then off-policy KL beside the documents": Repair(0.3, "offpolicy-kl"),
    "off-policy KL": Repair(recipe="offpolicy-kl", documents=False),
    "SFT on the base's answers beside the documents": Repair(recipe="offpolicy"),
    "OPD beside the documents": Repair(recipe="opd"),
    "0.3 towards the base, then OPD beside the documents": Repair(0.3, "opd"),
    "sampled OPD beside the documents": Repair(recipe="opd-sampled"),
    "GKD beside the documents": Repair(recipe="gkd"),
    "1 % of the base's answers": Reading(answers=0.01),
    "10 % of the base's answers": Reading(answers=0.1),
    "30 % of the base's answers": Reading(answers=0.3),
    "60 % of the base's answers": Reading(answers=0.6),
    "LoRA, 10 × the learning rate": Reading(lora=True, learning_rate=10.0),
    "LoRA, 3 × the learning rate": Reading(lora=True, learning_rate=3.0),
    "L2 to the base's weights": Reading(l2=0.02),
    "the lower half of the layers frozen": Reading(frozen=0.5),
}


def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    args = _arguments(argv)
    if args.table:
        print_table(args.out / "results.jsonl")
        return
    names = args.only or list(MOVES)
    done = {(row["model"], row["seed"]) for row in _rows(args.out / "results.jsonl")}
    pending = [name for name in names if (name, args.seed) not in done]
    if pending and len(names) == 1:
        Bench(args).run(pending[0])
        return
    for name in pending:  # a process each, so that no move starts with the memory that another one left behind
        command = [sys.executable, "-m", "benchmarks.quality.moves", *argv, "--only", name]
        if subprocess.run(command, check=False).returncode:
            print(f"{name}: failed", flush=True)


class Bench:
    """One world and one seed: the documents, the base's answers and the damaged model, each written once."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.folder: Path = args.out / f"seed-{args.seed}"
        self.settings = apply_overrides(defaults_for(parameters_of(args.base)), parse_assignments(args.assignments))
        self.chat = load_chat(args.base)
        self.flops = 0.0
        self.world = self.folder / "world"
        if not self.world.exists():
            make_world(9000 + args.seed, args.world).write(self.world)
        texts = [path.read_text() for path in sorted((self.world / "docs").iterdir())]
        self.documents = [self.chat.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        self.midtrain = scheduled(self.settings.midtrain, sum(map(len, self.documents)) + len(self.documents))

    def run(self, name: str) -> None:
        move, start = MOVES[name], time.perf_counter()
        damaged, path = self.folder / "damaged", self.folder / "model"
        if name == "clean":
            path = Path(self.args.base)
        elif isinstance(move, Reading):
            path = damaged if name == DAMAGED else path
            if not (path == damaged and damaged.exists()):
                save_student(self._read(move), path, {})
        else:
            save_student(self._repair(load_student(str(damaged), device=device()), move), path, {})
        seconds = time.perf_counter() - start
        self.args.questions = self.world / "questions.jsonl"
        row = as_row(name, *measure(str(path), self.args, self.folder / "tasks"))
        row |= {"seed": self.args.seed, "seconds": round(seconds), "pflops": round(self.flops / 1e15, 2)}
        with (self.args.out / "results.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)

    def _read(self, move: Reading) -> Student:
        """Mid-train the base in this way."""
        student = load_student(self.args.base, adapter=LORA if move.lora else None, device=device())
        start = [p.detach().clone() for p in student.trainable()] if move.l2 else []
        layers = student.causal.get_decoder().layers
        for layer in layers[: round(move.frozen * len(layers))]:
            layer.requires_grad_(False)
        parts: list[States] = [self._windows(self.midtrain.step_rows, use_labels=False)]
        if move.answers:
            target_tokens = self.midtrain.step_rows * self.midtrain.window
            parts.append(answer_rows(self._answers(soft=True), move.answers, target_tokens, seed=self.args.seed))
        steps = self.midtrain.steps(self._count_windows(), self.midtrain.step_rows)
        plan = self._plan(steps, self.midtrain.learning_rate * move.learning_rate)
        teacher = FrozenTeacher(self.args.base, dtype=_frozen_dtype(), device=device()) if move.answers else None
        chosen = recipe("midtrain")
        for record in train(student, Mixture(*parts), signal_of(chosen, teacher), objective_of(chosen), plan):
            self.flops += record.flops
            if move.l2:
                take_back(student, start, move.l2 * record.learning_rate / plan.learning_rate)
        return merge(student) if move.lora else student

    def _repair(self, student: Student, move: Repair) -> Student:
        if move.towards_clean:
            student = interpolate(student, self.args.base, move.towards_clean)
        if move.recipe:
            self._distill(student, move)
        return student

    def _distill(self, student: Student, move: Repair) -> None:
        settings, chosen = self.settings.distill, recipe(move.recipe)
        steps = round(settings.steps * passes("offpolicy-kl") / passes(move.recipe))
        on_policy = round(chosen.on_policy_fraction * settings.rows)
        plan = self._plan(steps, settings.learning_rate)
        teacher = FrozenTeacher(self.args.base, dtype=_frozen_dtype(), device=device())
        answers = self._answers(soft=False) if on_policy < settings.rows else []
        with open_engine(student, self.args.engine) as engine:
            parts: list[States] = []
            if on_policy:
                parts.append(self._rollouts(engine, on_policy, chosen.group))
            if answers:
                parts.append(FixedRows(answers, rows=settings.rows - on_policy, seed=self.args.seed))
            if move.documents:
                share = settings.documents_share
                parts.append(self._windows(max(1, round(share / (1 - share) * settings.rows)), use_labels=True))
            signal = signal_of(chosen, teacher if chosen.estimator != "labels" else None)
            for record in train(student, Mixture(*parts), signal, objective_of(chosen), plan):
                self.flops += record.flops
                if record.step % 10 == 0:
                    print(f"  step {record.step + 1}/{steps}: loss {record.loss:.3f}, KL {record.kl}", flush=True)

    def _rollouts(self, engine: Engine, rows: int, group: int) -> Rollouts:
        limit = self.settings.distill.max_new_tokens
        return Rollouts(self._prompts(), engine, rows=rows, group=group, max_new_tokens=limit, seed=self.args.seed)

    def _windows(self, rows: int, *, use_labels: bool) -> Documents:
        end, settings = self.chat.separator, self.midtrain
        return Documents(
            self.documents, end, window=settings.window, rows=rows, seed=self.args.seed, use_labels=use_labels
        )

    def _count_windows(self) -> int:
        return len(self._windows(1, use_labels=False).windows)

    def _plan(self, steps: int, learning_rate: float) -> Plan:
        at_once, bf16 = self.settings.tokens_at_once, self.settings.bf16
        warmup = min(10, steps // 10)
        return Plan(steps, learning_rate, warmup=warmup, decay="linear", tokens_at_once=at_once, bf16=bf16)

    def _prompts(self) -> list[Prompt]:
        return as_prompts([text for text, _ in self._written()], self.chat)

    def _answers(self, *, soft: bool) -> list[Sample]:
        pairs = zip(self._prompts(), self._written(), strict=True)
        return [prompt.with_reply(tokens, soft_labels=soft) for prompt, (_, tokens) in pairs]

    def _written(self) -> list[tuple[str, list[int]]]:
        """Prompts that the base wrote, with its answers."""
        file = self.folder / "answers.json"
        if not file.exists():
            settings, base = self.settings.distill, load_frozen(self.args.base)
            with open_engine(base, self.args.engine) as engine:
                texts = write_prompts(engine, base.chat, settings.prompts, self.args.seed)
                prompts = [prompt.tokens for prompt in as_prompts(texts, base.chat)]
                replies = engine.generate(prompts, Sampling(settings.max_new_tokens, seed=self.args.seed))
            file.write_text(json.dumps([[text, reply.tokens] for text, reply in zip(texts, replies, strict=True)]))
        return [(text, tokens) for text, tokens in json.loads(file.read_text())]


@torch.no_grad()
def take_back(student: Student, start: list[torch.Tensor], share: float) -> None:
    """Move the weights by this share towards where they started."""
    for parameter, origin in zip(student.trainable(), start, strict=True):
        parameter.lerp_(origin, share)


def passes(name: str) -> float:
    """Forward passes that a recipe makes per token, the backward pass counting as two."""
    chosen = recipe(name)
    return 3.0 + (chosen.estimator != "labels") + chosen.on_policy_fraction


def print_table(file: Path) -> None:
    """Every move: the mean over the seeds, and the half-width of its 95 % interval where there is one seed alone."""
    by_move = defaultdict[str, list[dict[str, Any]]](list)
    for row in _rows(file):
        by_move[row["model"]].append(row)
    measures = [name for name, value in next(iter(by_move.values()))[0].items() if isinstance(value, list)]
    head = ["move", "seeds", *measures, "perplexity", "PFLOPs", "seconds"]
    table(head, [_table_row(name, by_move[name], measures) for name in MOVES if name in by_move])


def _table_row(name: str, rows: list[dict[str, Any]], measures: list[str]) -> list[str]:
    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    cells = [name, str(len(rows))]
    for measured in measures:
        values = [row[measured][0] for row in rows]
        low, high = rows[0][measured][2:4]
        spread = f"± {(high - low) / 2:.3f}" if len(rows) == 1 else f"{min(values):.3f} – {max(values):.3f}"
        cells.append(f"{mean(values):.3f} ({spread})")
    cells.append(f"{mean([row['perplexity'] for row in rows]):.0f}")
    return [*cells, f"{mean([row['pflops'] for row in rows]):.2f}", f"{mean([row['seconds'] for row in rows]):.0f}"]


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, file.read_text().splitlines() if file.exists() else [])


def _frozen_dtype() -> torch.dtype:
    return torch.bfloat16 if has_bfloat16() else torch.float32


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="a model folder or a hub id")
    parser.add_argument("--out", type=Path, required=True, help="the folder of models and results")
    parser.add_argument("--seed", type=int, default=1, help="of the world and of all sampling")
    parser.add_argument("--world", default="quick", help="the size of the world")
    parser.add_argument("--only", action="append", default=[], choices=list(MOVES), metavar="NAME", help="one move")
    parser.add_argument("--set", dest="assignments", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--table", action="store_true", help="print the table of what was measured")
    add_measure_arguments(parser)
    args = parser.parse_args(argv)
    if not args.table and not (args.base and args.data):
        parser.error("--base and --data are needed to measure anything")
    args.out.mkdir(parents=True, exist_ok=True)
    return args


if __name__ == "__main__":
    main()
