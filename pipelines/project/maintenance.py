"""`recover init` creates a project with its settings file; `recover gc` deletes files in `.recover/` that nothing
refers to."""

import json
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from db.tables import Checkpoint, last_decisions
from pipelines.project.locations import HOME, absolute_if_exists, no_empty_folders
from pipelines.project.project import Project
from pipelines.project.runs import runs_of_command
from recovery.errors import RecoverError
from recovery.models.adapters import base_of
from recovery.models.students import parameters_of

INCOMPLETE = (".partial", ".before")  # suffixes of a folder while a save replaces it
WRITING_SECONDS = 24 * 3600.0  # that writing a file, or sending a model, may take
TRAINED = ("progress", "checkpoints")  # folders that only a training writes to
TEMPLATE = """\
# The defaults of other settings depend on the size of the model; `recover cycle --docs DIR --dry-run` shows them.
# [midtrain]
# epochs = "auto"    # by the size of the documents; for a small model 8
# [distill]
# steps = 100        # the maximum; for a small model 40, up to a billion parameters 80
# [gate]
# behaviour_margin = 0.03
# keep_retention = 0.95
"""


def initialise(root: Path, base: str | None, db: str | None) -> Project:
    """Create the project in the record and write recover.toml; an existing project or file stays as it is.

    If that fails, the file and the folders that it created are deleted."""
    file = root / "recover.toml"
    if file.exists() and (base or db):
        raise RecoverError(f"The file {file} exists already. Write base or db into it.")
    if db and Project.exists(root):
        raise RecoverError(
            f"The project in {root} has a record already, which --db would hide. To move it, write db into {file}."
        )
    is_new = not file.exists()
    with no_empty_folders(root / HOME):
        try:
            if is_new:
                root.mkdir(parents=True, exist_ok=True)
                given = (("base", base and absolute_if_exists(base)), ("db", db))
                lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in given if value]
                file.write_text("\n".join([*lines, TEMPLATE]), encoding="utf-8")
            project = Project.open(root, base)
            parameters_of(project.base)  # raises RecoverError for a base that cannot be loaded
            _ = project.id  # creates the project in the record
        except BaseException:
            if is_new:  # else later commands would read the rejected values
                file.unlink(missing_ok=True)
            raise
    return project


def collect_garbage(
    project: Project, unfinished_jobs: Mapping[str, set[int]], *, rejected: bool, dry_run: bool
) -> list[tuple[Path, int]]:
    """Delete unreferenced files and folders (with `dry_run` only list them); returns their paths and sizes in bytes.

    `unfinished_jobs` names the checkpoints that each job uses. With `rejected`, the weights of checkpoints that are no
    longer needed go too; the record keeps their scores."""
    garbage = [(path, _size(path)) for path in _unreferenced(project, unfinished_jobs, rejected)]
    if not dry_run:
        recorded = _recorded(project)
        for path, _ in garbage:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            if path.parent.name == "checkpoints" and path.name in recorded:
                project.tracker.weights_deleted(recorded[path.name].id)
    return garbage


def _unreferenced(project: Project, unfinished_jobs: Mapping[str, set[int]], rejected: bool) -> list[Path]:
    of_unfinished = [run.id for job in unfinished_jobs for run in runs_of_command(project, job)]
    unfinished_runs = {f"run-{run:04d}" for run in of_unfinished}

    def is_unfinished(folder: str) -> bool:
        return re.sub(r"(-good|-step-\d+)$", "", folder) in unfinished_runs

    # Leftovers of interrupted saves, except the `.before` of an unfinished run: it may be the only copy.
    found = [path for pattern in ("*", "*/*") for path in project.home.glob(pattern) if path.name.endswith(INCOMPLETE)]
    leftovers = [path for path in found if not _is_being_written(path, project.home)]
    incomplete = [p for p in leftovers if p.suffix != ".before" or not is_unfinished(p.stem)]
    progress, checkpoints = (
        [p for p in (project.home / kind).glob("run-*") if p not in leftovers and not is_unfinished(p.name)]
        for kind in TRAINED
    )
    ended = (project.reader.run_checkpoint(run) for run in of_unfinished)
    in_use = set().union(*unfinished_jobs.values(), (checkpoint.id for checkpoint in ended if checkpoint))
    return [*incomplete, *progress, *_unneeded(project, checkpoints, in_use, rejected)]


def _is_being_written(path: Path, home: Path) -> bool:
    """Whether another command may be writing it: those that train hold the lock, others do not."""
    if path.parent in [home / name for name in TRAINED]:
        return False
    try:
        return time.time() - path.stat().st_mtime < WRITING_SECONDS
    except FileNotFoundError:  # it has its final name now
        return True


def _unneeded(project: Project, folders: list[Path], in_use: set[int], rejected: bool) -> list[Path]:
    """Folders without a checkpoint in the record; with `rejected`, also those of checkpoints that nothing needs.

    Needed are the current checkpoint and those whose last decision is a promotion, that belong to an open cycle or are
    its start, recovered ones without a decision, those that an unfinished job uses, and the checkpoints below adapters
    among these."""
    checkpoints = _recorded(project)
    unrecorded = [folder for folder in folders if folder.name not in checkpoints]
    if not rejected:
        return unrecorded
    decisions = project.reader.promotions(project.id)
    promoted = [p.checkpoint_id for p in decisions if p.decision == "promoted"]  # the first is the current one
    last = last_decisions(decisions)
    open_cycles = {c.number for c in project.reader.cycles(project.id) if c.status == "open"}
    starts = {c.parent_id for c in checkpoints.values() if c.cycle in open_cycles}  # for a warm start
    needed = in_use | starts | set(promoted[:1]) | {id for id in promoted if last[id] == "promoted"}

    def is_needed(checkpoint: Checkpoint) -> bool:
        undecided = checkpoint.role == "recovered" and checkpoint.id not in last
        return checkpoint.id in needed or checkpoint.cycle in open_cycles or undecided

    recorded = [folder for folder in folders if folder.name in checkpoints]
    kept = set(_with_those_below([c for c in checkpoints.values() if is_needed(c)], checkpoints.values()))
    remaining = {folder for folder in recorded if checkpoints[folder.name].id in kept}
    remaining |= {below for folder in remaining if (below := _below(folder))}
    return unrecorded + [folder for folder in recorded if folder not in remaining]


def _with_those_below(needed: list[Checkpoint], all_checkpoints: Iterable[Checkpoint]) -> Iterator[int]:
    """Their ids, and by the record those below adapters among them: their folders may be elsewhere.

    An adapter that was trained further holds all of what it was, so what it was is not below it."""
    by_id = {c.id: c for c in all_checkpoints}
    for checkpoint in needed:
        yield checkpoint.id
        below: Checkpoint | None = checkpoint
        while below and below.kind == "adapter":
            below = by_id.get(below.parent_id or 0)
        if below:
            yield below.id


def _recorded(project: Project) -> dict[str, Checkpoint]:
    """The checkpoints trained here, by the name of their folder."""
    return {Path(c.path).name: c for c in project.reader.checkpoints(project.id) if c.run_id}


def _below(folder: Path) -> Path | None:
    """The folder of the checkpoint that an adapter was trained on, if it is one of the project."""
    with suppress(RecoverError):
        base = base_of(str(folder))
        return folder.parent / Path(base).name if base else None
    return None


def _size(path: Path) -> int:
    """Of a link to another disk the link's own, which alone is deleted."""
    is_folder = path.is_dir() and not path.is_symlink()
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if is_folder else path.lstat().st_size
