"""Memory of on-policy distillation: the clean base as the student with its adapter off, against a second copy of it.

    python -m benchmarks.speed.adapter_memory [--shape qwen3-0.6b] [--rows 32] [--max-new-tokens 256]

A model of a real shape in bfloat16 with random weights, an adapter on it, whole steps (rollout, teacher, update); on a
CPU each way in a process of its own. Random weights seldom end a reply: every rollout is about as long as allowed.
"""

import argparse
import json
import subprocess
import sys
from itertools import islice
from typing import Any

import torch

from benchmarks.common import median, model_folder, parser, table
from benchmarks.speed.divergence import highest, start_watching
from recovery.engines.transformers import TransformersEngine
from recovery.lab import instruction_tasks
from recovery.losses.objectives import Divergence
from recovery.models.adapters import Adapter
from recovery.models.students import load_student
from recovery.signals import TeacherSignal
from recovery.states import Prompt, Rollouts
from recovery.teachers import AdapterOffTeacher, FrozenTeacher, Teacher
from recovery.train import Plan, train

WAYS = ("adapter off", "separate")


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    options = parser(__doc__, steps=2)
    options.set_defaults(shape="qwen3-0.6b")
    options.add_argument("--rows", type=int, default=32)
    options.add_argument("--max-new-tokens", type=int, default=256)
    options.add_argument("--rank", type=int, default=64)
    options.add_argument("--way", choices=WAYS, help="in this process, one alone")
    asked = options.parse_args(arguments)
    if asked.model:
        asked.shape = None
    folder = model_folder(asked.model, asked.shape)
    if asked.way:
        print(json.dumps(one(asked, folder)))
        return {}
    given = ["steps", "warmup", "threads", "device", "rows", "max_new_tokens", "rank"]
    words = [word for name in given for word in (f"--{name.replace('_', '-')}", str(getattr(asked, name)))]
    found = {}
    for way in WAYS:
        if asked.device == "cuda":  # whose allocator keeps the count itself
            found[way] = one(argparse.Namespace(**vars(asked) | {"way": way}), folder)
            continue
        command = [sys.executable, "-m", "benchmarks.speed.adapter_memory", *words, "--model", folder, "--way", way]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[way] = json.loads(ran.stdout.splitlines()[-1])
    print(
        f"{asked.shape or asked.model}, bf16, adapter of rank {asked.rank}, {asked.rows} rows of {asked.max_new_tokens}"
    )
    rows = [[f"teacher: {way}", *(f"{value:,.2f}" for value in found[way].values())] for way in WAYS]
    table(["", *found[WAYS[0]]], rows)
    return found


def one(asked: Any, folder: str) -> dict[str, float]:
    torch.set_num_threads(asked.threads)
    before = start_watching(asked.device)
    adapter = Adapter(rank=asked.rank)
    student = load_student(folder, adapter=adapter, dtype=torch.bfloat16, device=asked.device)
    apart = asked.way == "separate"
    teacher: Teacher = (
        FrozenTeacher(folder, dtype=torch.bfloat16, device=asked.device)
        if apart
        else AdapterOffTeacher(student, folder)
    )
    weights = held(asked.device) - before
    tasks = instruction_tasks(0, asked.rows * (asked.steps + asked.warmup), "train")
    prompts = [Prompt(task.prompt, student.chat.prompt(task.prompt)) for task in tasks]
    states = Rollouts(prompts, TransformersEngine(student), rows=asked.rows, max_new_tokens=asked.max_new_tokens)
    plan = Plan(steps=asked.steps + asked.warmup, learning_rate=1e-4)
    records = list(islice(train(student, states, TeacherSignal(teacher), Divergence(1.0), plan), plan.steps))
    records = records[asked.warmup :]
    return {
        "weights, GB": weights / 1e9,
        "peak, GB": (highest(asked.device) - before) / 1e9,
        "s/step": median([r.rollout_seconds + r.teacher_seconds + r.update_seconds for r in records]),
        "rollout s": median([r.rollout_seconds for r in records]),
        "tokens/step": median([r.target_tokens for r in records]),
    }


def held(device: str) -> int:
    return torch.cuda.memory_allocated() if device == "cuda" else highest(device)


if __name__ == "__main__":
    main()
