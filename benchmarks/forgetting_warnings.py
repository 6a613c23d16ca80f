"""Does `ForgettingCallback` warn of trainings that damage a model, in time, and leave the others alone?

    python -m benchmarks.forgetting_warnings --out FILE.jsonl [--steps 400] [--seed 7] [--base MODEL]

Twenty-three trainings of the built-in model, or another base, by transformers' Trainer, each with the callback:
documents of an invented world, short answers to questions, or the base's own replies; full weights or an adapter;
several learning rates. Nothing says beforehand which of them do damage. The model is kept at the readings (`--looks` of
them, evenly spread, and one at the warning) and afterwards asked `--items` instruction prompts at each, which the
readings do not have. So for each training there are the step of the warning, and the loss at each look: beyond the
margin, within it, or not decided (with 95 % certainty). Another `--seed` is another world, other prompts and other
orders of the rows.

Short trainings cannot pay for readings; `--every` takes them all the same, where only the warnings are of interest.
Every training is one line of the file; an interrupted command goes on with the next one.
"""

import argparse
import itertools
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer, TrainerCallback
from transformers.utils.logging import disable_progress_bar

from benchmarks.forgetting_callback import Row, quiet_trainer
from benchmarks.scripts import add_rows, read_rows, script_parser, table
from evals.stats.paired_comparison import paired_test, wilson
from evals.stats.sequential import clear_outcome
from evals.subject import Subject
from evals.suites.lab import measure_instructions
from pipelines.settings.schema import Gate
from pipelines.storage import ContentCache
from pipelines.synthetic.base_outputs import sample_answers
from pipelines.synthetic.prompts import write_prompts
from pipelines.watch import ForgettingCallback
from recovery.engines.transformers import TransformersEngine
from recovery.hardware import has_bfloat16
from recovery.lab import BASE, make_world
from recovery.models.chat_template import turn_end
from recovery.models.students import Student, load_causal, load_chat, load_student

MAX_ROW, RANK = 256, 16  # tokens; of an adapter
DATA = ("documents", "answers", "own replies")
TRAININGS = (  # (data, learning rate, whether it trains an adapter)
    *itertools.product(("documents",), (2e-5, 1e-4, 3e-4, 1e-3, 2e-3), (False,)),
    *itertools.product(("documents",), (1e-4, 1e-3, 5e-3), (True,)),
    *itertools.product(("answers",), (1e-5, 1e-4, 5e-4), (False,)),
    *itertools.product(("answers",), (1e-4, 1e-3, 5e-3), (True,)),
    *itertools.product(("own replies",), (1e-5, 1e-4, 3e-4), (False,)),
    *itertools.product(("own replies",), (1e-4, 1e-3, 3e-3), (True,)),
    *(("documents", 2e-3, True), ("answers", 1e-3, False), ("answers", 2e-3, True)),
)


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    parser = script_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the JSON Lines file of the trainings")
    numbers = range(len(TRAININGS))
    parser.add_argument("--only", type=int, action="append", choices=numbers, metavar="N", help="the N-th training")
    parser.add_argument("--base", default=str(BASE), help="the model that is trained")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rows", type=int, default=16, help="rows of a step")
    parser.add_argument("--budget", type=float, default=0.03, help="the share of the time that readings may take")
    parser.add_argument("--items", type=int, default=1000, help="instruction prompts that measure the loss at a look")
    parser.add_argument("--looks", type=int, default=6, help="readings at which the model is kept and measured")
    parser.add_argument("--every", type=int, help="read each so many steps, whatever it takes, and write no replies")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args(arguments)
    disable_progress_bar()
    done = {row["training"] for row in read_rows(args.out)}
    if missing := [number for number in args.only or numbers if number not in done]:
        base = load_student(args.base)
        kinds = {TRAININGS[number][0] for number in missing}
        clean, data = passes(base, args.items), training_rows(base, args.steps * args.rows, args.seed, kinds)
        add_rows(args.out, (watch(number, data, clean, args) for number in missing), describe)
    rows = read_rows(args.out)
    print_summary(rows)
    return rows


def watch(
    number: int, data: Mapping[str, Sequence[Row]], clean: Mapping[str, bool], args: argparse.Namespace
) -> dict[str, Any]:
    """One training with its readings, and the loss at some of them."""
    name, learning_rate, has_adapter = TRAININGS[number]
    seed = 100 * args.seed + number
    torch.manual_seed(seed)
    tokenizer, model = AutoTokenizer.from_pretrained(args.base), load_causal(args.base, torch.float32)
    if has_adapter:
        model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"))
    with tempfile.TemporaryDirectory() as folder:
        trainer = quiet_trainer(
            model,
            tokenizer,
            list(data[name]),
            folder,
            max_steps=args.steps,
            learning_rate=learning_rate,
            warmup_steps=args.steps // 20,
            per_device_train_batch_size=args.rows,
            bf16=has_bfloat16(),
            seed=seed,
        )
        probes = 0 if args.every else 60
        callback = ForgettingCallback(trainer, every=args.every, budget=args.budget, probes=probes)
        kept = _KeptStates(callback)
        trainer.add_callback(callback)
        trainer.add_callback(kept)
        trainer.train()
        model = trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)  # no longer in bfloat16
    student = Student(model.eval(), load_chat(args.base), args.base)
    looks = []
    for step in sorted({*spread(list(kept.states), args.looks), kept.warned_at or args.steps}):
        model.load_state_dict(kept.states[step], strict=False)
        pair = paired_test(clean, passes(student, args.items))
        outcome = clear_outcome(pair.low, pair.high, Gate().behaviour_margin)
        looks.append({"step": step, "loss": -pair.difference, "outcome": outcome})
    return {
        "training": number,
        "data": name,
        "learning_rate": learning_rate,
        "adapter": has_adapter,
        "warned": kept.warned_at,
        "looks": looks,
        "readings": callback.readings,
        "share_of_time": callback.budget.taken_share,
    }


class _KeptStates(TrainerCallback):
    """Keeps the trained weights at every reading, and at the end."""

    def __init__(self, callback: ForgettingCallback):
        self.callback, self.states = callback, dict[int, dict[str, torch.Tensor]]()
        self.warned_at: int | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        readings = self.callback.readings
        if self.callback.warning and self.warned_at is None:
            self.warned_at = state.global_step
        if state.global_step == state.max_steps or (readings and readings[-1]["step"] == state.global_step):
            trained = {n: p for n, p in self.callback.trainer.model.named_parameters() if p.requires_grad}
            self.states[state.global_step] = {name: weight.detach().clone() for name, weight in trained.items()}


def spread(steps: Sequence[int], count: int) -> list[int]:
    """So many of the steps, evenly spread; the last one is among them."""
    count = min(count, len(steps))
    return [steps[(len(steps) * (i + 1)) // count - 1] for i in range(count)]


def passes(student: Student, items: int) -> dict[str, bool]:
    return measure_instructions(Subject(TransformersEngine(student), student.chat), items).passed_by_key()


def training_rows(base: Student, count: int, seed: int, kinds: Collection[str] = DATA) -> dict[str, list[Row]]:
    """Token rows by kind of data. The base writes its own replies only where these are asked for."""
    chat, world = base.chat, make_world(seed=seed)
    encode, end = partial(chat.tokenizer.encode, add_special_tokens=False), turn_end(chat.tokenizer)
    texts = [[*encode(d.text)[: MAX_ROW - 1], chat.separator] for d in world.documents()]
    assert end is not None
    answers = [_row(chat.prompt(q.question), [*encode(q.answer), end]) for q in world.questions()]
    rows = {"documents": [_row([], tokens) for tokens in texts], "answers": answers}
    if "own replies" not in kinds:
        return rows
    engine = TransformersEngine(base)
    prompts = write_prompts(engine, chat, min(count, 512), seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        subject, cache = Subject(engine, chat), ContentCache(Path(folder))
        replies = sample_answers(lambda: nullcontext(subject), chat, prompts, cache, "", max_new_tokens=MAX_ROW)
    rows["own replies"] = [
        Row(input_ids=s.tokens, labels=[t if target else -100 for t, target in zip(s.tokens, s.targets, strict=True)])
        for s in replies
    ]
    return rows


def _row(prompt: Sequence[int], reply: Sequence[int]) -> Row:
    return {"input_ids": [*prompt, *reply], "labels": [-100] * len(prompt) + list(reply)}


def describe(row: Mapping[str, Any]) -> str:
    kind = "an adapter" if row["adapter"] else "full weights"
    looks = ", ".join(f"{look['loss']:+.3f} at {look['step']} ({look['outcome']})" for look in row["looks"])
    warned = f"warned after {row['warned']} steps" if row["warned"] else "no warning"
    taken = f"{row['share_of_time']:.1%} of the time"
    return f"{row['data']}, {row['learning_rate']:g}, {kind}: {warned}; loss {looks}; {taken}"


def print_summary(rows: Sequence[Mapping[str, Any]]) -> None:
    """How many of the damaging and of the harmless trainings were warned of, by the loss at their end.

    In time is a warning at whose step the loss was not certainly beyond the margin."""
    names = {"failed": "beyond the margin", "passed": "within the margin", "open": "not decided"}
    lines = []
    for outcome, name in names.items():
        if chosen := [row for row in rows if row["looks"][-1]["outcome"] == outcome]:
            warned = [r for r in chosen if r["warned"]]
            low, high = wilson(len(warned), len(chosen))
            share = f"{len(warned)} of {len(chosen)} ({low:.2f} to {high:.2f})"
            in_time = sum(_at_warning(r)["outcome"] != "failed" for r in warned)
            lines.append([name, share, str(in_time), *_when(warned)])
    table(["loss at the end", "warned", "in time", "step of the warning", "loss by then"], lines)


def _when(warned: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    if not warned:
        return "", ""
    losses = [_at_warning(r)["loss"] for r in warned]
    steps = [r["warned"] for r in warned]
    return f"{min(steps)} to {max(steps)}", f"{min(losses):.3f} to {max(losses):.3f}"


def _at_warning(row: Mapping[str, Any]) -> Any:
    return next(look for look in row["looks"] if look["step"] == row["warned"])


if __name__ == "__main__":
    main()
