"""What lies in .recover/ that nothing refers to any more."""

import shutil
from pathlib import Path

from pipelines.errands import unfinished
from pipelines.project import Project
from pipelines.runs import run_of


def sweep(project: Project, *, rejected: bool, dry_run: bool) -> list[tuple[Path, int]]:
    """Removed (or, on a dry run, named): paths and their sizes. The record keeps what it says about them."""
    found = [(path, _size(path)) for path in _loose(project, rejected)]
    if not dry_run:
        for path, _ in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return found


def _loose(project: Project, rejected: bool) -> list[Path]:
    home = project.home
    halves = [p for p in home.glob("*/*") if p.name.endswith((".partial", ".before"))]
    return [*halves, *_progress_of_ended_runs(project), *_checkpoints(project, rejected)]


def _progress_of_ended_runs(project: Project) -> list[Path]:
    wanted = {errand.id for errand in unfinished(project.home)}
    running = {f"run-{run.id:04d}" for run in project.reader.runs(project.id) if run.settings.get("errand") in wanted}
    there = [p for p in (project.home / "progress").glob("run-*") if not p.name.endswith((".partial", ".before"))]
    return [p for p in there if p.name.removesuffix("-good") not in running]


def _checkpoints(project: Project, rejected: bool) -> list[Path]:
    known = {Path(c.path).name: c for c in project.reader.checkpoints(project.id) if c.run_id}
    there = [p for p in (project.home / "checkpoints").glob("run-*") if not p.name.endswith((".partial", ".before"))]
    unknown = [p for p in there if p.name not in known and not _is_being_made(project, p)]
    if not rejected:
        return unknown
    promoted = {p.checkpoint_id for p in project.reader.promotions(project.id) if p.decision == "promoted"}
    open_cycles = {c.number for c in project.reader.cycles(project.id) if c.status == "open"}
    decided = [p for p in there if p.name in known and known[p.name].id not in promoted]
    return unknown + [p for p in decided if known[p.name].cycle not in open_cycles]


def _is_being_made(project: Project, folder: Path) -> bool:
    """A checkpoint that was written, and its run interrupted before the record heard of it."""
    runs = [
        run_of(project, errand, stage) for errand in unfinished(project.home) for stage in ("midtrained", "recovered")
    ]
    return folder.name in {f"run-{run.id:04d}" for run in runs if run is not None}


def _size(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size
