"""Memory of on-policy distillation: the student with its adapter off as the teacher, against a second copy of the base.

    python -m benchmarks.adapter_memory [--shape qwen3-0.6b] [--rows 32] [--max-new-tokens 256]

A model of a real shape in bfloat16 with random weights and an adapter, whole steps (rollout, teacher, update); on a CPU
each variant runs in its own process. Random weights seldom end a reply, so every rollout is about as long as allowed.
"""

import argparse
import json
import subprocess
import sys
from itertools import islice
from typing import Any

import torch

from benchmarks.common import median, model_folder, speed_parser
from benchmarks.divergence import peak_memory, reset_peak
from benchmarks.scripts import table
from recovery.engines.transformers import TransformersEngine
from recovery.lab import instruction_tasks
from recovery.models.adapters import Adapter
from recovery.models.students import load_student
from recovery.objectives import Divergence
from recovery.signals import TeacherSignal
from recovery.states import Prompt, Rollouts
from recovery.teachers import AdapterOffTeacher, FrozenTeacher, Teacher
from recovery.train import Plan, train

TEACHERS = ("adapter off", "separate")


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    parser = speed_parser(__doc__, steps=2)
    parser.set_defaults(shape="qwen3-0.6b")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--teacher", choices=TEACHERS, help="measure only this variant, in this process")
    args = parser.parse_args(arguments)
    if args.model:
        args.shape = None
    folder = model_folder(args.model, args.shape)
    if args.teacher:
        print(json.dumps(measure(args, folder)))
        return {}
    names = ["steps", "warmup", "threads", "device", "rows", "max_new_tokens", "rank"]
    flags = [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in names]
    results = {}
    for teacher in TEACHERS:
        if args.device == "cuda":  # its allocator counts each variant separately
            results[teacher] = measure(argparse.Namespace(**vars(args) | {"teacher": teacher}), folder)
            continue
        command = [sys.executable, "-m", "benchmarks.adapter_memory", *flags]
        command += [f"--model={folder}", f"--teacher={teacher}"]
        process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results[teacher] = json.loads(process.stdout.splitlines()[-1])
    print(f"{args.shape or args.model}, bf16, adapter of rank {args.rank}, {args.rows} rows of {args.max_new_tokens}")
    rows = [[f"teacher: {name}", *(f"{value:,.2f}" for value in results[name].values())] for name in TEACHERS]
    table(["", *results[TEACHERS[0]]], rows)
    return results


def measure(args: Any, folder: str) -> dict[str, float]:
    torch.set_num_threads(args.threads)
    before = reset_peak(args.device)
    adapter = Adapter(rank=args.rank)
    student = load_student(folder, adapter=adapter, dtype=torch.bfloat16, device=args.device)
    teacher: Teacher = AdapterOffTeacher(student, folder)
    if args.teacher == "separate":
        teacher = FrozenTeacher(folder, dtype=torch.bfloat16, device=args.device)
    weights = allocated(args.device) - before
    tasks = instruction_tasks(0, args.rows * (args.steps + args.warmup), "train")
    prompts = [Prompt(task.prompt, student.chat.prompt(task.prompt)) for task in tasks]
    states = Rollouts(prompts, TransformersEngine(student), rows=args.rows, max_new_tokens=args.max_new_tokens)
    plan = Plan(steps=args.steps + args.warmup, learning_rate=1e-4)
    records = list(islice(train(student, states, TeacherSignal(teacher), Divergence(1.0), plan), plan.steps))
    records = records[args.warmup :]
    return {
        "weights, GB": weights / 1e9,
        "peak, GB": (peak_memory(args.device) - before) / 1e9,
        "s/step": median([r.rollout_seconds + r.teacher_seconds + r.update_seconds for r in records]),
        "rollout s": median([r.rollout_seconds for r in records]),
        "tokens/step": median([r.target_tokens for r in records]),
    }


def allocated(device: str) -> int:
    return torch.cuda.memory_allocated() if device == "cuda" else peak_memory(device)


if __name__ == "__main__":
    main()
