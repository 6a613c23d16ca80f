"""Checkpoints for tests that need a record but no model."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from db.tables import Checkpoint, Decision, Role, RunInputs
from pipelines.gate.promotion import decide
from pipelines.project.project import Project, weights_hash


def record_checkpoint(
    project: Project,
    cycle: int | None,
    size: int,
    role: Role = "recovered",
    parent: int | None = None,
    questions: Path | None = None,
) -> int:
    """Record a run and its checkpoint, whose weights are `size` bytes; returns the checkpoint's id."""
    inputs = RunInputs(questions=str(questions) if questions else None)
    run = project.tracker.start_run(project.id, "distill", cycle, inputs=inputs)
    folder = project.checkpoint_folder(run)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"x" * size)
    checkpoint = project.tracker.checkpoint(
        project.id, role, folder, parent=parent or project.clean.id, run=run, cycle=cycle, hash=weights_hash(folder)
    )
    project.tracker.finish_run(run, "done")
    return checkpoint


def record_cycle(project: Project, decision: Decision | None = None, role: Role = "recovered") -> int:
    """Record a cycle with one checkpoint, and what was decided on it; returns the checkpoint's id."""
    cycle, number = project.tracker.open_cycle(project.id)
    checkpoint = record_checkpoint(project, cycle, number, role)
    if decision:
        decide(project, project.resolve(f"cycle:{number}"), decision, "because")
    return checkpoint


def promoted_cycle(project: Project, questions: Path | None = None, of_distillation: Path | None = None) -> Checkpoint:
    """The promoted checkpoint of a cycle whose mid-training read documents, and what each stage was given to ask."""
    cycle, number = project.tracker.open_cycle(project.id)
    inputs = RunInputs(corpus="c0ffee", questions=str(questions) if questions else None)
    run = project.tracker.start_run(project.id, "midtrain", cycle, inputs=inputs)
    clean = project.clean.id
    midtrained = project.tracker.checkpoint(project.id, "midtrained", "m", parent=clean, run=run, cycle=cycle)
    recovered = record_checkpoint(project, cycle, 1, parent=midtrained, questions=of_distillation)
    project.tracker.promote(project.id, cycle, recovered, "promoted", "ada", "it reads well")
    return project.resolve(f"cycle:{number}")


HOLDER = """
import sys, time
from pathlib import Path
from pipelines.project.project import Project
from pipelines.project.lock import command_lock, project_lock
folder = Path(sys.argv.pop(1))
with {lock}:
    print("locked", flush=True)
    time.sleep(60)
"""


@contextmanager
def holding(lock: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The process of the command `cycle --docs there`, which has this lock of the folder."""
    command = [sys.executable, "-c", HOLDER.format(lock=lock), folder, "cycle", "--docs", "there"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        yield holder
