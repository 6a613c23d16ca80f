"""What lies in .recover/ that nothing refers to any more."""

import shutil
from contextlib import suppress
from pathlib import Path

from db.views import Checkpoint
from pipelines.job import unfinished
from pipelines.project.project import Project
from pipelines.project.runs import runs_of
from recovery.errors import RecoverError
from recovery.models.adapters import base_of

HALVES = (".partial", ".before")


def sweep(project: Project, *, rejected: bool, dry_run: bool) -> list[tuple[Path, int]]:
    """Removed (or, on a dry run, named): paths and their sizes. The record keeps what it says about them."""
    found = [(path, _size(path)) for path in _loose(project, rejected)]
    if not dry_run:
        for path, _ in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return found


def _loose(project: Project, rejected: bool) -> list[Path]:
    going_on = {f"run-{run.id:04d}" for job in unfinished(project.home) for run in runs_of(project, job)}
    checkpoints = [p for p in _whole_folders(project, "checkpoints") if p.name not in going_on]
    progress = [p for p in _whole_folders(project, "progress") if p.name.removesuffix("-good") not in going_on]
    return [*_halves(project, going_on), *progress, *_unneeded(project, checkpoints, rejected)]


def _halves(project: Project, going_on: set[str]) -> list[Path]:
    """Of a run that goes on, what was there before a save is all there is, where the save was cut off."""
    found = [p for p in project.home.glob("*/*") if p.name.endswith(HALVES)]
    return [p for p in found if p.suffix != ".before" or p.stem.removesuffix("-good") not in going_on]


def _whole_folders(project: Project, kind: str) -> list[Path]:
    return [p for p in (project.home / kind).glob("run-*") if not p.name.endswith(HALVES)]


def _unneeded(project: Project, folders: list[Path], rejected: bool) -> list[Path]:
    """Not on record; or, if asked, on record as no longer wanted: neither promoted, nor of an open cycle, nor waiting
    for a decision, nor what an interrupted command goes on from, nor what an adapter among those sits on."""
    known = {Path(c.path).name: c for c in project.reader.checkpoints(project.id) if c.run_id}
    unknown = [folder for folder in folders if folder.name not in known]
    if not rejected:
        return unknown
    decisions = project.reader.promotions(project.id)
    decided = {p.checkpoint_id for p in decisions}
    needed = {id for e in unfinished(project.home) for id in (e.start, e.student, e.teacher) if id is not None}
    needed |= {p.checkpoint_id for p in decisions if p.decision == "promoted"}
    open_cycles = {c.number for c in project.reader.cycles(project.id) if c.status == "open"}

    def wanted(made: Checkpoint) -> bool:
        undecided = made.role == "recovered" and made.cycle is None and made.id not in decided
        return made.id in needed or made.cycle in open_cycles or undecided

    on_record = [folder for folder in folders if folder.name in known]
    staying = [folder for folder in on_record if wanted(known[folder.name])]
    for folder in staying:  # grows as it goes: an adapter may sit on a folder whose own stays for its sake
        staying += [other for other in on_record if other == _below(folder) and other not in staying]
    return unknown + [folder for folder in on_record if folder not in staying]


def _below(folder: Path) -> Path | None:
    """What an adapter sits on; nothing of ours, where that is gone."""
    with suppress(RecoverError):
        found = base_of(str(folder))
        return folder.parent / Path(found).name if found else None
    return None


def _size(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size
