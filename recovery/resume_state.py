"""The whole state of a run on disk, so that it goes on after any end, the violent one included.

A folder that is written aside and renamed: what is there is whole. The weights are those that learn, the rest is the
optimiser and the count of steps; a draw depends on nothing else (`recovery.states`). The caller may add notes of its
own, which belong to the same place of the run.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from recovery.errors import RecoverError
from recovery.models.students import Student
from recovery.train import TrainState

WEIGHTS, STATE, NOTES = "learning.safetensors", "state.pt", "notes.json"


def save_progress(folder: Path, student: Student, state: TrainState, notes: dict[str, Any] | None = None) -> bool:
    """False where the run stands within a draw that it goes over several times: the last saved place is kept then."""
    if not state.between_draws:
        return False
    aside, before = folder.with_name(folder.name + ".partial"), folder.with_name(folder.name + ".before")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    learning = {n: p.detach().contiguous() for n, p in student.model.named_parameters() if p.requires_grad}
    save_file(learning, aside / WEIGHTS)
    state.save(aside / STATE)
    (aside / NOTES).write_text(json.dumps(notes or {}), encoding="utf-8")
    if folder.exists():  # a folder cannot be replaced in one step: there is a whole one under one name or the other
        shutil.rmtree(before, ignore_errors=True)
        folder.rename(before)
    aside.rename(folder)
    shutil.rmtree(before, ignore_errors=True)
    return True


def load_progress(folder: Path, student: Student, state: TrainState) -> dict[str, Any] | None:
    """Bring student and state to where the run stood, and give back its notes; None where nothing was saved yet."""
    found = _whole(folder)
    if found is None:
        return None
    learning = {n: p for n, p in student.model.named_parameters() if p.requires_grad}
    saved = load_file(found / WEIGHTS)
    if {n: t.shape for n, t in saved.items()} != {n: p.shape for n, p in learning.items()}:
        raise RecoverError(f"{found} was saved by a run with other weights than this one trains; start it anew")
    with torch.no_grad():
        for name, parameter in learning.items():
            parameter.copy_(saved[name])
    state.load(found / STATE)
    student.updates += 1  # engines that serve a copy now know it is stale
    notes: dict[str, Any] = json.loads((found / NOTES).read_text(encoding="utf-8"))
    return notes


def has_progress(folder: Path) -> bool:
    return _whole(folder) is not None


def _whole(folder: Path) -> Path | None:
    return next((f for f in (folder, folder.with_name(folder.name + ".before")) if (f / STATE).is_file()), None)


def discard_progress(folder: Path) -> None:
    for name in (folder.name, folder.name + ".before", folder.name + ".partial"):
        shutil.rmtree(folder.with_name(name), ignore_errors=True)
