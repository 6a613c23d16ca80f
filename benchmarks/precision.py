"""Does computing in bfloat16 change what a frozen model says? Against float32, with the engine that a run would take.

    python -m benchmarks.precision --model DIR --ifeval input_data.jsonl [--items 200]

Replies at temperature 1 are sampled by the engine; their tokens have log-probs by the engine, by the model in float32,
and by the model as a training computes it (bfloat16 autocast on weights in float32). Greedy replies to the same prompts
are judged, in float32 and by the engine, with the speed of both.
"""

import math
from pathlib import Path
from statistics import fmean

import torch

from benchmarks.scripts import script_parser, table
from evals.results import Metric
from evals.stats.paired_comparison import paired_test
from evals.subject import Subject
from evals.suites.instruction_following import measure_ifeval, read_prompts
from pipelines.model_loading import device, load_frozen, open_engine
from recovery.engines import Engine, Generation, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.models.students import load_student


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = script_parser(__doc__)
    parser.add_argument("--model", required=True, help="a model folder or a hub id")
    parser.add_argument("--ifeval", type=Path, required=True, help="the file of the prompts")
    parser.add_argument("--items", type=int, default=200, help="prompts")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--engine", default="auto", choices=["auto", "transformers", "vllm"])
    args = parser.parse_args(argv)
    prompts = read_prompts(args.ifeval)[: args.items]
    frozen = load_frozen(args.model)
    chat = frozen.chat
    rows = [chat.prompt(prompt.text) for prompt in prompts]
    with open_engine(frozen, args.engine) as engine:
        name = type(engine).__name__.removesuffix("Engine")
        sampled = engine.generate(rows, Sampling(args.max_new_tokens, seed=1))
        ours = measure_ifeval(Subject(engine, chat), prompts, data="both", max_new_tokens=args.max_new_tokens)
    full = TransformersEngine(load_student(args.model, frozen=True, device=device()))
    exact = measure_ifeval(Subject(full, chat), prompts, data="both", max_new_tokens=args.max_new_tokens)
    by_engine = [reply.logprobs for reply in sampled]
    in_float32 = _scored(full, rows, sampled)
    with torch.autocast(device(), torch.bfloat16):
        as_trained = _scored(full, rows, sampled)
    lines, differences = [], dict[str, float]()
    for label, others in (("float32", in_float32), ("bfloat16 autocast, as trained", as_trained)):
        off = [fmean(abs(a - b) for a, b in zip(*row, strict=True)) for row in zip(by_engine, others, strict=True)]
        ratios = [
            fmean(math.exp(b - a) for a, b in zip(*row, strict=True)) for row in zip(by_engine, others, strict=True)
        ]
        differences[label] = fmean(off)
        lines.append([f"{name} against {label}", *map(_with_interval, (off, ratios))])
    table(["log-probs of the same tokens", "mean difference", "mean importance ratio"], lines)
    change = paired_test(exact.passed_by_key(), ours.passed_by_key())
    table(
        ["greedy replies", "instructions followed", "tokens/s, read and written"],
        [
            [label, f"{result.headline.value:.3f}", f"{(result.cost or {})['tokens_per_second']:.0f}"]
            for label, result in (("transformers in float32", exact), (name, ours))
        ],
    )
    lost, gained = len(change.lost), len(change.gained)
    print(f"{change.n} prompts: {lost} lost, {gained} gained, {change.low:+.3f} to {change.high:+.3f}")
    return differences


def _scored(engine: Engine, prompts: list[list[int]], replies: list[Generation]) -> list[list[float]]:
    """The log-probs of the replies' tokens."""
    scores = engine.logprobs([prompt + reply.tokens for prompt, reply in zip(prompts, replies, strict=True)])
    return [row[-len(reply.tokens) :] for row, reply in zip(scores, replies, strict=True)]


def _with_interval(means: list[float]) -> str:
    """The mean over replies with its 95 % interval."""
    metric = Metric.from_values(means)
    low, high = metric.ci95
    return f"{metric.value:.4f} [{low:.4f}, {high:.4f}]"


if __name__ == "__main__":
    main()
