"""The effect itself: whole cycles through the product's own pipeline, on worlds and seeds that nothing was tuned on.

    python -m benchmarks.effect [--worlds 301,302,303] [--seeds 31,32,33] [--items 1000] [--size cycle]

Each world is read by the built-in base and recovered with ordinary settings; prompts are the base's own. Printed: what
mid-training cost, what came back (paired with the clean model, item by item), and what is known of the new world.
"""

import argparse
import tempfile
from pathlib import Path

from evals.results import main_result
from evals.statistics import paired
from pipelines.beginning import Wishes, begin
from pipelines.cycle import Outcome, carry_out
from pipelines.project import Project
from recovery.lab import BASE, make_world


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--base", default=str(BASE))
    options.add_argument("--worlds", default="301,302,303")
    options.add_argument("--seeds", default="31,32,33", help="one a world")
    options.add_argument("--items", type=int, default=1000)
    options.add_argument("--size", default="cycle")
    options.add_argument("--set", dest="dotted", action="append", default=[])
    asked = options.parse_args()
    head = f"{'world/seed':12} {'clean':>6} {'damaged':>8} {'recovered':>10} {'share':>6}  {'difference (bounds)':26}"
    print(f"{head} {'known: damaged':>15} {'recovered':>10} {'own world':>20}  steps  seconds", flush=True)
    for world, seed in zip(asked.worlds.split(","), asked.seeds.split(","), strict=True):
        with tempfile.TemporaryDirectory() as folder:
            show(f"{world}/{seed}", one(Path(folder), int(world), int(seed), asked))


def one(folder: Path, world: int, seed: int, asked: argparse.Namespace) -> Outcome:
    make_world(world, size=asked.size).write(folder / "world")
    project = Project.open(folder, asked.base)
    wishes = Wishes(
        "cycle",
        docs=folder / "world" / "docs",
        questions=folder / "world" / "questions.jsonl",
        teacher="base",
        limit=asked.items,
        seed=seed,
        dotted=tuple(asked.dotted),
    )
    silent = lambda words: None  # noqa: E731
    done = carry_out(project, begin(project, wishes, silent), silent)
    assert isinstance(done, Outcome)
    return done


def show(name: str, done: Outcome) -> None:
    stages = (done.clean, done.damaged, done.recovered)
    clean, damaged, recovered = (main_result(results, "behaviour") for results in stages)
    known = [main_result(results, "knowledge") for results in stages]
    own = [next((r for r in results if r.task == "own_world"), None) for results in stages]
    assert clean is not None
    assert damaged is not None
    assert recovered is not None
    pair = paired(clean.passed_by_key(), recovered.passed_by_key())
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
