"""Whole cycles through the product's own pipeline, each on the documents of a world made for it."""

import argparse
from pathlib import Path
from typing import Any

from pipelines.cycle import Outcome, run_job
from pipelines.prepare_job import Request, prepare_job
from pipelines.project.project import Project
from recovery.lab import BASE, make_world

ALONE = ("midtrain.mix.answers=0", "midtrain.mix.texts=0")


def options(about: str | None, *, items: int, size: str) -> argparse.ArgumentParser:
    """What each benchmark of whole cycles takes; the settings are those of `recover cycle`."""
    found = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--base", default=str(BASE))
    found.add_argument("--items", type=int, default=items, help=f"at most so many a task (default {items})")
    found.add_argument("--size", default=size, help=f"of a world: quick or cycle (default {size})")
    found.add_argument("--teacher", default="base", metavar="REF")
    found.add_argument("--alone", action="store_true", help="read documents with nothing of the base's own beside them")
    found.add_argument("--earlier", type=float, metavar="SHARE")
    found.add_argument("--warm-start", metavar="off|auto|default|SHARE")
    found.add_argument("--set", dest="dotted", action="append", default=[], metavar="NAME=VALUE")
    return found


def cycle_on(world: int, seed: int, folder: Path, asked: argparse.Namespace) -> Outcome:
    """One cycle in the project of that folder; several in one folder go on from each other."""
    place = folder / f"world-{world}"
    make_world(world, size=asked.size).write(place)
    flags: dict[str, Any] = {}
    if asked.earlier is not None:
        flags["midtrain"] = {"mix": {"earlier": asked.earlier}}
    if asked.warm_start is not None:
        flags["distill"] = {"warm_start": asked.warm_start}
    project = Project.open(folder, asked.base)
    request = Request(
        "cycle",
        docs=place / "docs",
        questions=place / "questions.jsonl",
        teacher=asked.teacher,
        limit=asked.items,
        seed=seed,
        flags=flags,
        dotted=(*(ALONE if asked.alone else ()), *asked.dotted),
    )
    done = run_job(project, prepare_job(project, request))
    assert isinstance(done, Outcome)
    return done
