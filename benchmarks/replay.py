"""How much replay is worth: whole cycles through the pipeline, alike in everything but `midtrain.replay`.

    python -m benchmarks.replay [--shares 0 0.1 0.2 0.3 0.5] [--seeds 1 2 3] [--items 500]

Each row is a cycle on a new world's documents, begun anew: what is left of the behaviour after mid-training alone, and
after distillation. `--set` reaches any setting, so that the whole can be tried out in a minute:

    python -m benchmarks.replay --shares 0 0.3 --items 3 --set midtrain.max_steps=2 --set distill.max_steps=1 \\
        --set distill.prompts=20 --set distill.max_new_tokens=60 --set distill.probe_every=0
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import table
from evals.results import Result, headlines
from pipelines.beginning import Wishes, begin
from pipelines.cycle import Outcome, carry_out
from pipelines.lock import held
from pipelines.project import Project
from recovery.lab import BASE, make_world

SCORES = ("behaviour", "knowledge", "retention")
HEAD = ("replay", "seed", *(f"{stage} {score}" for stage in ("read", "distilled") for score in SCORES), "s")


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--base", default=str(BASE))
    options.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.3, 0.5])
    options.add_argument("--seeds", type=int, nargs="+", default=[1])
    options.add_argument("--items", type=int, default=500, help="at most so many a task")
    options.add_argument("--world", default="quick", help="the size of the new world")
    options.add_argument("--set", dest="dotted", action="append", default=[], metavar="NAME=VALUE")
    asked = options.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in asked.seeds:
            docs = Path(folder) / f"world-{seed}"
            make_world(8000 + seed, asked.world).write(docs)
            for share in asked.shares:
                began = time.perf_counter()
                outcome = cycle(Path(folder), docs, share, seed, asked)
                about = {"replay": share, "seed": seed, "seconds": time.perf_counter() - began}
                rows.append(about | {name: headlines(of) for name, of in _stages(outcome)})
                print(f"replay {share}, seed {seed}: {rows[-1]['damaged']} → {rows[-1]['recovered']}", file=sys.stderr)
    clean = rows[0]["clean"]
    print(f"clean: {', '.join(f'{score} {_shown(clean[score])}' for score in SCORES)}\n")
    table(HEAD, [_cells(row) for row in rows])
    return rows


def cycle(folder: Path, docs: Path, share: float, seed: int, asked: argparse.Namespace) -> Outcome:
    """A project of its own; what the base wrote for the seed's first one is not written again."""
    home, first = folder / f"{seed}-{share}", folder / f"{seed}-cache"
    if first.is_dir():
        shutil.copytree(first, home / ".recover" / "cache")
    project = Project.open(_made(home), asked.base)
    wishes = Wishes(
        "cycle",
        docs=docs / "docs",
        teacher="base",
        questions=docs / "questions.jsonl",
        limit=asked.items,
        seed=seed,
        dotted=(f"midtrain.replay={share}", *asked.dotted),
    )
    with held(project.home, "benchmarks.replay"):
        outcome = carry_out(project, begin(project, wishes, _say), _say)
    assert isinstance(outcome, Outcome)
    shutil.copytree(home / ".recover" / "cache", first, dirs_exist_ok=True)
    return outcome


def _stages(outcome: Outcome) -> list[tuple[str, list[Result]]]:
    return [("clean", outcome.clean), ("damaged", outcome.damaged), ("recovered", outcome.recovered)]


def _cells(row: dict[str, Any]) -> list[str]:
    scores = [_shown(row[stage][score]) for stage in ("damaged", "recovered") for score in SCORES]
    return [f"{row['replay']}", f"{row['seed']}", *scores, f"{row['seconds']:.0f}"]


def _shown(score: float | None) -> str:
    return "-" if score is None else f"{score:.3f}"


def _made(home: Path) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    return home


def _say(words: str) -> None:
    print(f"  {words}", file=sys.stderr)


if __name__ == "__main__":
    main()
