"""Several cycles in one project, each on another world: what is retained of the earlier ones.

    python -m benchmarks.quality.many_cycles [--cycles 5] [--first-world 401] [--items 500] [--size quick]
    python -m benchmarks.quality.many_cycles --earlier 0.4 --warm-start 0.4 --teacher router --set distill.steps=30

One row per cycle: instruction following (of the clean model, after mid-training, recovered), the clean model's own
world, and the knowledge of the documents of every cycle so far. A rejected cycle stays in the table, and the next one
starts from the last promoted model. `--loud` prints the progress messages of `recover cycle` on standard error.
"""

import tempfile
import time
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from benchmarks.quality.world_cycles import cycle_parser, run_cycle
from evals.results import Result, main_result
from pipelines.evaluation.checkpoint_measurement import earlier_results
from pipelines.log import print_progress
from pipelines.outcome import Outcome


def main(arguments: list[str] | None = None) -> list[Outcome]:
    parser = cycle_parser(__doc__, items=500, size="quick")
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument("--first-world", type=int, default=401)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep the project in this folder, to continue or inspect it")
    parser.add_argument("--loud", action="store_true")
    args = parser.parse_args(arguments)
    disable_progress_bar()
    if args.loud:
        print_progress()
    head = f"{'cycle':5}  {'verdict':12} {'clean':>6} {'damaged':>7} {'recovered':>9} {'own world':>9}"
    print(f"{head} {'steps':>5} {'s':>5}  knowledge, by cycle", flush=True)
    outcomes = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        for number in range(1, args.cycles + 1):
            start = time.perf_counter()
            outcomes.append(run_cycle(args.first_world + number - 1, args.seed, folder, args))
            print_row(number, outcomes[-1], time.perf_counter() - start)
    return outcomes


def print_row(number: int, outcome: Outcome, seconds: float) -> None:
    own = next((r for r in outcome.recovered if r.task == "own_world"), None)
    knowledge = [
        *(result for _, result in sorted(earlier_results(outcome.recovered).items())),
        main_result(outcome.recovered, "knowledge"),
    ]
    stages = (outcome.clean, outcome.damaged, outcome.recovered)
    behaviour = [_value(main_result(results, "behaviour")) for results in stages]
    verdict = "promoted" if outcome.promoted else outcome.verdict.outcome
    print(
        f"{number:5}  {verdict:12} {behaviour[0]:>6} {behaviour[1]:>7} "
        f"{behaviour[2]:>9} {_value(own):>9} {outcome.distilled.steps:5} {seconds:5.0f}  "
        f"{'  '.join(map(_value, knowledge))}",
        flush=True,
    )


def _value(result: Result | None) -> str:
    return f"{result.headline.value:.3f}" if result else "-"


if __name__ == "__main__":
    main()
