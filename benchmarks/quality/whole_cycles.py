"""The main result: whole cycles of the product's pipeline, on worlds and seeds that were not used for tuning.

    python -m benchmarks.quality.whole_cycles [--worlds 301,302,303] [--seeds 31,32,33] [--items 1000] [--size cycle]

The built-in base is mid-trained on each world and recovered with default settings, on its own prompts. Prints the loss
from mid-training, the recovery (compared with the clean model item by item), and the knowledge of the new world.
"""

import tempfile
from pathlib import Path

from benchmarks.quality.world_cycles import cycle_parser, run_cycle
from evals.results import main_result
from evals.stats.paired_comparison import paired_test
from pipelines.outcome import Outcome


def main() -> None:
    parser = cycle_parser(__doc__, items=1000, size="cycle")
    parser.add_argument("--worlds", default="301,302,303")
    parser.add_argument("--seeds", default="31,32,33", help="one per world")
    args = parser.parse_args()
    head = f"{'world/seed':12} {'clean':>6} {'damaged':>8} {'recovered':>10} {'share':>6}  {'difference (bounds)':26}"
    print(f"{head} {'knowledge: damaged':>18} {'recovered':>10} {'own world':>20}  steps  seconds", flush=True)
    for world, seed in zip(args.worlds.split(","), args.seeds.split(","), strict=True):
        with tempfile.TemporaryDirectory() as folder:
            print_row(f"{world}/{seed}", run_cycle(int(world), int(seed), Path(folder), args))


def print_row(name: str, outcome: Outcome) -> None:
    stages = (outcome.clean, outcome.damaged, outcome.recovered)
    clean, damaged, recovered = (main_result(results, "behaviour") for results in stages)
    knowledge = [main_result(results, "knowledge") for results in stages]
    own = [next((r for r in results if r.task == "own_world"), None) for results in stages]
    assert clean is not None
    assert damaged is not None
    assert recovered is not None
    pair = paired_test(clean.passed_by_key(), recovered.passed_by_key())
    a, b, c = (r.headline.value for r in (clean, damaged, recovered))
    values = [f"{k.headline.value:.3f}" if k else "-" for k in knowledge]
    own_world = " → ".join(f"{o.headline.value:.3f}" if o else "-" for o in own)
    difference = f"{pair.difference:+.3f} ({pair.low:+.3f} … {pair.high:+.3f})"
    print(
        f"{name:12} {a:6.3f} {b:8.3f} {c:10.3f} {c / a:6.3f}  {difference:26} "
        f"{values[1]:>18} {values[2]:>10} {own_world:>20}  "
        f"{outcome.distilled.steps:5}  {outcome.distilled.seconds:7.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
