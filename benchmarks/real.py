"""A real model's speed, side by side in one run: rollouts, mid-training, a step of OPD and IFEval, each against a peer.

    python -m benchmarks.real --model DIR [--ifeval input_data.jsonl] [--only rollouts,midtrain,opd,ifeval]

Rollouts: this package's engines, and the transformers engine in float32 as the baseline. Mid-training: transformers'
`Trainer`. A step of OPD: TRL's `DistillationTrainer`. IFEval: the `lm_eval` command. Every part is a benchmark of its
own in `benchmarks` with the settings below, and prints its own table first.
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import torch

from benchmarks import lm_eval, midtrain, opd_step
from benchmarks.scripts import table
from pipelines.model_loading import load_frozen, open_engine
from recovery.engines import Engine, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.lab import instruction_tasks
from recovery.models.students import load_student

ROWS, NEW_TOKENS = 64, 128  # of the rollouts
OPD_ROWS = 16  # with 32 TRL's step takes more than 24 GB beside ours
TARGETS = {"rollouts": 2.5, "midtrain": 1.15, "opd": 3.0, "ifeval": 4.0}
Row = tuple[str, float]  # the peer, and our speed as a multiple of its own


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model folder or a hub id")
    parser.add_argument("--ifeval", help="the file of public prompts (default: generated ones)")
    parser.add_argument("--items", type=int, default=16, help="prompts of IFEval")
    parser.add_argument("--steps", type=int, default=3, help="timed steps per side")
    parser.add_argument("--engine", default="auto", choices=["auto", "transformers", "vllm"], help="of our side")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="for all sides (default: all cores)")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    args = parser.parse_args(argv)
    rows = {name: _in_own_process(name, args) for name in args.only.split(",")}
    cells = [[name, peer, f"{ratio:.2f} ×", f"{TARGETS[name]:g} ×"] for name, (peer, ratio) in rows.items()]
    table(["", "against", "ours", "target"], cells)
    return {name: ratio for name, (_, ratio) in rows.items()}


def _in_own_process(name: str, args: argparse.Namespace) -> Row:
    """What one part leaves in memory would slow the next one, or end it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_part, name, args).result()


def _part(name: str, args: argparse.Namespace) -> Row:
    torch.set_num_threads(args.threads)
    return PARTS[name](args)


def rollouts(args: argparse.Namespace) -> Row:
    """Tokens per second of sampling with the engine that a run would take, and of the same in float32."""
    baseline = load_student(args.model, frozen=True)
    texts = [task.prompt for task in instruction_tasks(0, ROWS, "train")]
    prompts = [baseline.chat.prompt(text) for text in texts]
    slow = _rollout_speed(TransformersEngine(baseline), prompts)
    model = load_frozen(args.model)
    in_transformers = _rollout_speed(TransformersEngine(model), prompts)
    with open_engine(model, args.engine) as engine:
        fast = _rollout_speed(engine, prompts)
        name = type(engine).__name__.removesuffix("Engine")
    table(
        ["engine", "tokens/s"],
        [
            ["transformers, float32", f"{slow:.0f}"],
            [f"transformers, {_dtype(model.model)}", f"{in_transformers:.0f}"],
            [f"{name}, as a run takes it", f"{fast:.0f}"],
        ],
    )
    return "the transformers engine in float32", fast / slow


def midtraining(args: argparse.Namespace) -> Row:
    options = ["--rows", "8", "--window", "512", "--bf16", "--steps", str(args.steps)]
    result = midtrain.main(["--model", args.model, "--threads", str(args.threads), *options])
    return "transformers' Trainer", result["ratio"]


def opd(args: argparse.Namespace) -> Row:
    options = ["--rows", str(OPD_ROWS), "--max-new-tokens", str(NEW_TOKENS), "--bf16", "--steps", str(args.steps)]
    options += ["--engine", args.engine]
    result = opd_step.main(["--model", args.model, "--threads", str(args.threads), *options])
    return "TRL's DistillationTrainer", result["ratio"]


def ifeval(args: argparse.Namespace) -> Row:
    engine = "transformers" if args.engine == "transformers" else "vllm"
    options = ["--items", str(args.items), "--engine", engine, "--dtype", "bfloat16", "--end-loops"]
    options += ["--ifeval", args.ifeval] if args.ifeval else []
    result = lm_eval.main(["--model", args.model, "--threads", str(args.threads), *options])["ifeval"]
    return "the lm_eval command", result.ratio


PARTS: dict[str, Callable[[argparse.Namespace], Row]] = {
    "rollouts": rollouts,
    "midtrain": midtraining,
    "opd": opd,
    "ifeval": ifeval,
}


def _rollout_speed(engine: Engine, prompts: list[list[int]]) -> float:
    engine.generate(prompts[:2], Sampling(4))
    start = time.perf_counter()
    replies = engine.generate(prompts, Sampling(NEW_TOKENS, seed=1))
    return sum(len(reply.tokens) for reply in replies) / (time.perf_counter() - start)


def _dtype(model: torch.nn.Module) -> str:
    return str(next(model.parameters()).dtype).removeprefix("torch.")


if __name__ == "__main__":
    main()
