"""Cycle after cycle in one project, each on another world: what is kept of all of them.

    python -m benchmarks.quality.many_cycles [--cycles 5] [--first-world 401] [--items 500] [--size quick]
    python -m benchmarks.quality.many_cycles --earlier 0.4 --warm-start 0.4 --teacher router --set distill.steps=30

A row a cycle: instructions followed (by the clean model, after mid-training, recovered), the clean model's own world,
and what is known of the documents of every cycle that it went through. A rejected cycle stays in the table, and the
next one starts from what was promoted last. `--loud`: what `recover cycle` would say, on standard error.
"""

import tempfile
import time
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from benchmarks.quality.world_cycles import cycle_on, options
from evals.results import Result, main_result
from pipelines.cycle import Outcome
from pipelines.evaluation.measure import earlier_results
from pipelines.log import print_progress


def main(arguments: list[str] | None = None) -> list[Outcome]:
    wanted = options(__doc__, items=500, size="quick")
    wanted.add_argument("--cycles", type=int, default=5)
    wanted.add_argument("--first-world", type=int, default=401)
    wanted.add_argument("--seed", type=int, default=0)
    wanted.add_argument("--folder", type=Path, help="where the project is kept, to go on with or to look at")
    wanted.add_argument("--loud", action="store_true")
    asked = wanted.parse_args(arguments)
    disable_progress_bar()
    if asked.loud:
        print_progress()
    head = f"{'cycle':5}  {'verdict':12} {'clean':>6} {'damaged':>7} {'recovered':>9} {'own world':>9}"
    print(f"{head} {'steps':>5} {'s':>5}  known, cycle by cycle", flush=True)
    found = []
    with tempfile.TemporaryDirectory() as passing:
        folder = asked.folder or Path(passing)
        for number in range(1, asked.cycles + 1):
            began = time.perf_counter()
            found.append(cycle_on(asked.first_world + number - 1, asked.seed, folder, asked))
            show(number, found[-1], time.perf_counter() - began)
    return found


def show(number: int, done: Outcome, seconds: float) -> None:
    own = next((r for r in done.recovered if r.task == "own_world"), None)
    known = [
        *(result for _, result in sorted(earlier_results(done.recovered).items())),
        main_result(done.recovered, "knowledge"),
    ]
    behaviour = [_value(main_result(results, "behaviour")) for results in (done.clean, done.damaged, done.recovered)]
    print(
        f"{number:5}  {'promoted' if done.promoted else done.verdict.outcome:12} {behaviour[0]:>6} {behaviour[1]:>7} "
        f"{behaviour[2]:>9} {_value(own):>9} {done.distilled.steps:5} {seconds:5.0f}  {'  '.join(map(_value, known))}",
        flush=True,
    )


def _value(result: Result | None) -> str:
    return f"{result.headline.value:.3f}" if result else "-"


if __name__ == "__main__":
    main()
