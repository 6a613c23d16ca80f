"""The effect of the share of the base's answers: whole cycles that differ only in `midtrain.mix.answers`.

    python -m benchmarks.quality.answer_share [--shares 0 0.1 0.2 0.3 0.5] [--seeds 1 2 3] [--items 500]

Each row is a cycle in a new project on a new world's documents: the scores after mid-training and after distillation.
`--set` changes any setting, for a trial run of a minute:

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
from benchmarks.quality.world_cycles import cycle_parser, run_cycle
from evals.results import Result, headlines
from pipelines.log import print_progress
from pipelines.outcome import Outcome

SCORES = ("behaviour", "knowledge", "retention")
HEAD = ("answers", "seed", *(f"{stage} {score}" for stage in ("mid-trained", "distilled") for score in SCORES), "s")


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    parser = cycle_parser(__doc__, items=500, size="quick")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.3, 0.5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--world", dest="size", default="quick", help="as --size")
    args = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in args.seeds:
            for share in args.shares:
                start = time.perf_counter()
                outcome = cycle(Path(folder), share, seed, args)
                row = {"answers": share, "seed": seed, "seconds": time.perf_counter() - start}
                rows.append(row | {name: headlines(results) for name, results in _stages(outcome)})
                print(f"answers {share}, seed {seed}: {rows[-1]['damaged']} → {rows[-1]['recovered']}", file=sys.stderr)
    clean = rows[0]["clean"]
    print(f"clean: {', '.join(f'{score} {_format(clean[score])}' for score in SCORES)}\n")
    table(HEAD, [_cells(row) for row in rows])
    return rows


def cycle(folder: Path, share: float, seed: int, args: argparse.Namespace) -> Outcome:
    """One cycle in a new project, with the texts that the base wrote for the seed's first project."""
    home, cache = folder / f"{seed}-{share}", folder / f"{seed}-cache"
    home.mkdir(parents=True, exist_ok=True)
    if cache.is_dir():
        shutil.copytree(cache, home / ".recover" / "cache")
    cycle_args = argparse.Namespace(
        **vars(args) | {"assignments": [f"midtrain.mix.answers={share}", "midtrain.mix.texts=0", *args.assignments]}
    )
    print_progress()
    outcome = run_cycle(8000 + seed, seed, home, cycle_args)
    shutil.copytree(home / ".recover" / "cache", cache, dirs_exist_ok=True)
    return outcome


def _stages(outcome: Outcome) -> list[tuple[str, list[Result]]]:
    return [("clean", outcome.clean), ("damaged", outcome.damaged), ("recovered", outcome.recovered)]


def _cells(row: dict[str, Any]) -> list[str]:
    scores = [_format(row[stage][score]) for stage in ("damaged", "recovered") for score in SCORES]
    return [f"{row['answers']}", f"{row['seed']}", *scores, f"{row['seconds']:.0f}"]


def _format(score: float | None) -> str:
    return "-" if score is None else f"{score:.3f}"


if __name__ == "__main__":
    main()
