"""The effect itself: whole cycles through the product's own pipeline, on worlds and seeds that nothing was tuned on.

    python -m benchmarks.quality.whole_cycles [--worlds 301,302,303] [--seeds 31,32,33] [--items 1000] [--size cycle]

Each world is read by the built-in base and recovered with ordinary settings; prompts are the base's own. Printed: what
mid-training cost, what came back (paired with the clean model, item by item), and what is known of the new world.
"""

import tempfile
from pathlib import Path

from benchmarks.quality.world_cycles import cycle_on, options
from evals.results import main_result
from evals.stats.paired_tests import paired_test
from pipelines.cycle import Outcome


def main() -> None:
    wanted = options(__doc__, items=1000, size="cycle")
    wanted.add_argument("--worlds", default="301,302,303")
    wanted.add_argument("--seeds", default="31,32,33", help="one a world")
    asked = wanted.parse_args()
    head = f"{'world/seed':12} {'clean':>6} {'damaged':>8} {'recovered':>10} {'share':>6}  {'difference (bounds)':26}"
    print(f"{head} {'known: damaged':>15} {'recovered':>10} {'own world':>20}  steps  seconds", flush=True)
    for world, seed in zip(asked.worlds.split(","), asked.seeds.split(","), strict=True):
        with tempfile.TemporaryDirectory() as folder:
            show(f"{world}/{seed}", cycle_on(int(world), int(seed), Path(folder), asked))


def show(name: str, done: Outcome) -> None:
    stages = (done.clean, done.damaged, done.recovered)
    clean, damaged, recovered = (main_result(results, "behaviour") for results in stages)
    known = [main_result(results, "knowledge") for results in stages]
    own = [next((r for r in results if r.task == "own_world"), None) for results in stages]
    assert clean is not None
    assert damaged is not None
    assert recovered is not None
    pair = paired_test(clean.passed_by_key(), recovered.passed_by_key())
    a, b, c = (r.headline.value for r in (clean, damaged, recovered))
    kept = [f"{k.headline.value:.3f}" if k else "-" for k in known]
    world = " → ".join(f"{o.headline.value:.3f}" if o else "-" for o in own)
    difference = f"{pair.difference:+.3f} ({pair.low:+.3f} … {pair.high:+.3f})"
    print(
        f"{name:12} {a:6.3f} {b:8.3f} {c:10.3f} {c / a:6.3f}  {difference:26} {kept[1]:>15} {kept[2]:>10} {world:>20}  "
        f"{done.distilled.steps:5}  {done.distilled.seconds:7.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
