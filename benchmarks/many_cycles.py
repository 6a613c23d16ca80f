"""Cycle after cycle in one project, each on another world: what is kept of all of them.

    python -m benchmarks.many_cycles [--cycles 5] [--first-world 401] [--items 500] [--size quick] [--set NAME=VALUE …]

A row a cycle: instructions followed, the clean model's own world, and what is known of the documents of every cycle so
far. A cycle that the gate rejects stays in the table; the next one starts from what was promoted last.
"""

import argparse
import tempfile
from pathlib import Path

from evals.results import main_result
from pipelines.beginning import Wishes, begin
from pipelines.cycle import Outcome, carry_out
from pipelines.measuring import of_earlier
from pipelines.project import Project
from recovery.lab import BASE, make_world


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--base", default=str(BASE))
    options.add_argument("--cycles", type=int, default=5)
    options.add_argument("--first-world", type=int, default=401)
    options.add_argument("--items", type=int, default=500)
    options.add_argument("--size", default="quick")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--set", dest="dotted", action="append", default=[])
    asked = options.parse_args()
    print(f"{'cycle':5}  {'verdict':12} {'instructions':>12} {'clean':>6} {'own world':>9}  known, cycle by cycle")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, asked.cycles + 1):
            show(number, one(Path(folder), asked.first_world + number - 1, asked))


def one(folder: Path, world: int, asked: argparse.Namespace) -> Outcome:
    place = folder / f"world-{world}"
    make_world(world, size=asked.size).write(place)
    project = Project.open(folder, asked.base)
    wishes = Wishes(
        "cycle",
        docs=place / "docs",
        questions=place / "questions.jsonl",
        teacher="base",
        limit=asked.items,
        seed=asked.seed,
        dotted=tuple(asked.dotted),
    )
    silent = lambda words: None  # noqa: E731
    done = carry_out(project, begin(project, wishes, silent), silent)
    assert isinstance(done, Outcome)
    return done


def show(number: int, done: Outcome) -> None:
    behaviour, clean = main_result(done.recovered, "behaviour"), main_result(done.clean, "behaviour")
    own = next((r for r in done.recovered if r.task == "own_world"), None)
    known = [result.headline.value for _, result in sorted(of_earlier(done.recovered).items())]
    new = main_result(done.recovered, "knowledge")
    assert behaviour is not None
    assert clean is not None
    kept = "  ".join(f"{value:.3f}" for value in [*known, *([new.headline.value] if new else [])])
    print(
        f"{number:5}  {'promoted' if done.promoted else done.verdict.outcome:12} {behaviour.headline.value:12.3f} "
        f"{clean.headline.value:6.3f} {f'{own.headline.value:.3f}' if own else '-':>9}  {kept}",
        flush=True,
    )


if __name__ == "__main__":
    main()
