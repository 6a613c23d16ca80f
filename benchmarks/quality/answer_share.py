"""How much replay is worth: whole cycles through the pipeline, alike in everything but `midtrain.mix.answers`.

    python -m benchmarks.quality.answer_share [--shares 0 0.1 0.2 0.3 0.5] [--seeds 1 2 3] [--items 500]

Each row is a cycle on a new world's documents, begun anew: what is left of the behaviour after mid-training alone, and
after distillation. `--set` reaches any setting, so that the whole can be tried out in a minute:

    python -m benchmarks.quality.answer_share --shares 0 0.3 --items 3 --set midtrain.max_steps=2 \\
        --set distill.max_steps=1 --set distill.prompts=20 --set distill.max_new_tokens=60 --set distill.probe_every=0
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import table
from benchmarks.quality.world_cycles import cycle_on, options
from evals.results import Result, headlines
from pipelines.cycle import Outcome
from pipelines.log import print_progress

SCORES = ("behaviour", "knowledge", "retention")
HEAD = ("replay", "seed", *(f"{stage} {score}" for stage in ("read", "distilled") for score in SCORES), "s")


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    wanted = options(__doc__, items=500, size="quick")
    wanted.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.3, 0.5])
    wanted.add_argument("--seeds", type=int, nargs="+", default=[1])
    wanted.add_argument("--world", dest="size", default="quick", help="as --size")
    asked = wanted.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in asked.seeds:
            for share in asked.shares:
                began = time.perf_counter()
                outcome = cycle(Path(folder), share, seed, asked)
                about = {"replay": share, "seed": seed, "seconds": time.perf_counter() - began}
                rows.append(about | {name: headlines(of) for name, of in _stages(outcome)})
                print(f"replay {share}, seed {seed}: {rows[-1]['damaged']} → {rows[-1]['recovered']}", file=sys.stderr)
    clean = rows[0]["clean"]
    print(f"clean: {', '.join(f'{score} {_shown(clean[score])}' for score in SCORES)}\n")
    table(HEAD, [_cells(row) for row in rows])
    return rows


def cycle(folder: Path, share: float, seed: int, asked: argparse.Namespace) -> Outcome:
    """A project of its own; what the base wrote for the seed's first one is not written again."""
    home, first = folder / f"{seed}-{share}", folder / f"{seed}-cache"
    home.mkdir(parents=True, exist_ok=True)
    if first.is_dir():
        shutil.copytree(first, home / ".recover" / "cache")
    like = argparse.Namespace(
        **vars(asked) | {"dotted": [f"midtrain.mix.answers={share}", "midtrain.mix.texts=0", *asked.dotted]}
    )
    print_progress()
    outcome = cycle_on(8000 + seed, seed, home, like)
    shutil.copytree(home / ".recover" / "cache", first, dirs_exist_ok=True)
    return outcome


def _stages(outcome: Outcome) -> list[tuple[str, list[Result]]]:
    return [("clean", outcome.clean), ("damaged", outcome.damaged), ("recovered", outcome.recovered)]


def _cells(row: dict[str, Any]) -> list[str]:
    scores = [_shown(row[stage][score]) for stage in ("damaged", "recovered") for score in SCORES]
    return [f"{row['replay']}", f"{row['seed']}", *scores, f"{row['seconds']:.0f}"]


def _shown(score: float | None) -> str:
    return "-" if score is None else f"{score:.3f}"


if __name__ == "__main__":
    main()
