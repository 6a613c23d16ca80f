"""Four measures of any model on local public data: instruction following, new knowledge, what it knew before, fluency.

    python -m benchmarks.quality.measure_model clean=./smollm2 mine=./checkpoint --data DIR [--questions FILE]

`--data` is a folder with one folder a task: ifeval, ifeval_extended, wikitext2 and the tasks of `public_data`. Every
score has its 95 % interval. The first model is the baseline: each other's difference to it is paired by item, with its
two one-sided 95 % bounds.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.quality.public_data import TASKS, write_tasks
from evals.harness.tasks import run_task
from evals.results import Result
from evals.stats.paired_comparison import paired_test
from evals.subject import Subject
from evals.suites import lab
from evals.suites.general import measure_general
from evals.suites.instruction_following import measure_ifeval, read_prompts
from evals.suites.knowledge import measure_questions, read_questions
from pipelines.model_loading import load_frozen, open_engine
from recovery.engines.transformers import TransformersEngine
from recovery.models.students import Student

WIKITEXT_WINDOW, WIKITEXT_WINDOWS = 512, 40


def measure(path: str, args: argparse.Namespace, folder: Path) -> tuple[dict[str, Result], float]:
    """The result of every task, and the perplexity. The folder is for the files of the tasks."""
    student = load_frozen(path)
    with open_engine(student, args.engine) as engine:
        results = dict(_generated(Subject(engine, student.chat), args))
    scorer = Subject(TransformersEngine(student), student.chat)
    results["general"] = measure_general(scorer)
    for task in write_tasks(args.data, folder):
        if task.stem in args.tasks.split(","):
            [results[task.stem]] = run_task(scorer, str(task), suite="retention", limit=args.items)
    return results, wikitext_perplexity(student, args.data / "wikitext2" / "wiki.test.raw")


def _generated(subject: Subject, args: argparse.Namespace) -> Iterator[tuple[str, Result]]:
    for name in args.prompts.split(","):
        if name == "natural":
            yield name, lab.measure_natural_instructions(subject, args.natural)
        elif name:
            prompts = read_prompts(args.data / name / "input_data.jsonl")[: args.ifeval]
            yield name, measure_ifeval(subject, prompts, data=name, max_new_tokens=args.max_new_tokens)
    if args.questions:
        yield "knowledge", measure_questions(subject, read_questions(args.questions), data=args.questions.name)


def add_measure_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, help="the folder of the public data")
    parser.add_argument("--questions", type=Path, help="closed-book questions on the new documents")
    parser.add_argument("--prompts", default="ifeval", help="ifeval, ifeval_extended, natural; separated by commas")
    parser.add_argument("--ifeval", type=int, help="prompts of each set (default: all)")
    parser.add_argument("--natural", type=int, default=2000, help="prompts of the generated set")
    parser.add_argument("--max-new-tokens", type=int, default=768)
    parser.add_argument("--tasks", default=",".join(TASKS), help="lm-eval tasks, separated by commas")
    parser.add_argument("--items", type=int, help="items of each lm-eval task (default: all)")
    parser.add_argument("--engine", default="auto", choices=["auto", "transformers", "vllm"])


def as_row(name: str, results: dict[str, Result], perplexity: float) -> dict[str, Any]:
    """The scores as JSON: per task its value, n and 95 % interval."""
    metrics = {task: result.headline for task, result in results.items()}
    scores = {task: [metric.value, metric.n, *metric.ci95] for task, metric in metrics.items()}
    return {"model": name, **scores, "perplexity": perplexity}


@torch.inference_mode()
def wikitext_perplexity(student: Student, file: Path) -> float:
    ids = student.chat.tokenizer(file.read_text(encoding="utf-8")[:400_000], add_special_tokens=False)["input_ids"]
    windows = [ids[i : i + WIKITEXT_WINDOW] for i in range(0, len(ids) - WIKITEXT_WINDOW, WIKITEXT_WINDOW)]
    scores = TransformersEngine(student).logprobs(windows[:WIKITEXT_WINDOWS])
    return math.exp(-math.fsum(map(math.fsum, scores)) / sum(map(len, scores)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="NAME=PATH; the first is the baseline")
    add_measure_arguments(parser)
    parser.add_argument("--out", type=Path, help="append the scores to this JSON Lines file")
    args = parser.parse_args()
    if not args.data:
        parser.error("--data names the folder of the public data")
    baseline: dict[str, Result] = {}
    for model in args.models:
        name, _, path = model.partition("=")
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            results, perplexity = measure(path, args, Path(folder))
        baseline = baseline or results
        report(name, results, baseline, perplexity, time.perf_counter() - start, args.out)


def report(
    name: str, results: dict[str, Result], baseline: dict[str, Result], perplexity: float, seconds: float, out: Path
) -> None:
    print(f"\n{name} ({seconds:.0f} s)", flush=True)
    for task, result in results.items():
        metric = result.headline
        line = f"  {task:<16} {metric.value:.3f} [{metric.ci95[0]:.3f}, {metric.ci95[1]:.3f}] n = {metric.n}"
        if results is not baseline:
            change = paired_test(baseline[task].passed_by_key(), result.passed_by_key())
            line += f"  {change.difference:+.3f} ({change.low:+.3f} … {change.high:+.3f})"
        for extra in ("inst_level_strict_acc", "finished"):
            if extra in result.metrics:
                line += f"  {extra.partition('_')[0]} {result.metrics[extra].value:.3f}"
        print(line, flush=True)
    print(f"  {'wikitext-2':<16} perplexity {perplexity:.1f}", flush=True)
    if out:
        with out.open("a") as file:
            file.write(json.dumps(as_row(name, results, perplexity)) + "\n")


if __name__ == "__main__":
    main()
