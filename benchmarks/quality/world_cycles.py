"""Run whole cycles of the product's pipeline, each on the documents of a generated world."""

import argparse
from pathlib import Path

from pipelines.cycle import run_job
from pipelines.outcome import Outcome
from pipelines.prepare_job import prepare_job
from pipelines.project.project import Project
from pipelines.request import Request
from recovery.lab import BASE, make_world

ALL_PROMPTS = "gate.block=0"  # the tables compare stages on the same prompts
DOCUMENTS_ALONE = ("midtrain.mix.answers=0", "midtrain.mix.texts=0")


def cycle_parser(description: str | None, *, items: int, size: str) -> argparse.ArgumentParser:
    """The arguments that the benchmarks of whole cycles share; settings are those of `recover cycle`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=str(BASE))
    parser.add_argument("--items", type=int, default=items, help=f"at most, per task (default {items})")
    parser.add_argument("--size", default=size, help=f"of a world: quick or cycle (default {size})")
    parser.add_argument("--teacher", default="base", metavar="REF")
    parser.add_argument("--alone", action="store_true", help="train on documents alone, without the base's texts")
    parser.add_argument("--earlier", type=float, metavar="SHARE")
    parser.add_argument("--warm-start", metavar="off|auto|default|SHARE")
    parser.add_argument("--set", dest="assignments", action="append", default=[], metavar="NAME=VALUE")
    return parser


def run_cycle(world: int, seed: int, folder: Path, args: argparse.Namespace) -> Outcome:
    """Run one cycle in the project of that folder; later cycles in it start from the earlier ones."""
    world_folder = folder / f"world-{world}"
    make_world(world, size=args.size).write(world_folder)
    assignments = [ALL_PROMPTS, *(DOCUMENTS_ALONE if args.alone else ())]
    if args.earlier is not None:
        assignments.append(f"midtrain.mix.earlier={args.earlier}")
    if args.warm_start is not None:
        assignments.append(f"distill.warm_start={args.warm_start}")
    project = Project.open(folder, args.base)
    request = Request(
        "cycle",
        docs=world_folder / "docs",
        questions=world_folder / "questions.jsonl",
        teacher=args.teacher,
        limit=args.items,
        seed=seed,
        assignments=(*assignments, *args.assignments),
    )
    outcome = run_job(project, prepare_job(project, request))
    assert isinstance(outcome, Outcome)
    return outcome
