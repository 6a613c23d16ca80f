"""Save and load the whole state of a training run, so that it can resume after any interruption, a kill included.

The state is a folder that is written under another name, stored by the disk, and then renamed, so a folder under the
final name is complete. One that was damaged since is passed over, as if it had not been saved. It holds the trained
weights, the optimiser and the step count; draws depend on nothing else (see `recovery.states`). The caller may add the
average of the weights that teaches, and notes of its own, which are saved with the same step.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from recovery.errors import RecoverError
from recovery.files import stored
from recovery.models.students import Student
from recovery.teachers import EmaTeacher
from recovery.train import TrainState

WEIGHTS, AVERAGE, STATE, NOTES = "learning.safetensors", "average.safetensors", "state.pt", "notes.json"


def save_progress(
    folder: Path,
    student: Student,
    state: TrainState,
    notes: dict[str, Any] | None = None,
    average: EmaTeacher | None = None,
) -> bool:
    """Save the run; return False, and save nothing, in the middle of a draw that is trained on for several epochs."""
    if not state.between_draws:
        return False
    partial = folder.with_name(folder.name + ".partial")
    with stored(partial, folder):
        trainable = {n: p.detach().contiguous() for n, p in student.model.named_parameters() if p.requires_grad}
        save_file(trainable, partial / WEIGHTS)
        if average is not None:
            average.save(partial / AVERAGE)
        state.save(partial / STATE)
        (partial / NOTES).write_text(json.dumps(notes or {}), encoding="utf-8")
    before = folder.with_name(folder.name + ".before")
    if folder.exists():  # a folder cannot be replaced in one step: one of the two names always holds a complete one
        shutil.rmtree(before, ignore_errors=True)
        folder.rename(before)
    partial.rename(folder)
    shutil.rmtree(before, ignore_errors=True)
    return True


def load_progress(
    folder: Path, student: Student, state: TrainState, average: EmaTeacher | None = None
) -> dict[str, Any] | None:
    """Restore student and state, and return the caller's notes; return None if nothing was saved yet, or all of it is
    damaged: student and state are as before then."""
    saved_folder = _whole_folder(folder)
    if saved_folder is None:
        return None
    trainable = {n: p for n, p in student.model.named_parameters() if p.requires_grad}
    saved = load_file(saved_folder / WEIGHTS)
    if {n: t.shape for n, t in saved.items()} != {n: p.shape for n, p in trainable.items()}:
        raise RecoverError(
            f"The progress in {saved_folder} was saved by a run that trained other weights. Start the run again."
        )
    with torch.no_grad():
        for name, parameter in trainable.items():
            parameter.copy_(saved[name])
    if average is not None:
        average.load(saved_folder / AVERAGE)
    state.load(saved_folder / STATE)
    student.updates += 1  # tells engines that their copy of the weights is stale
    return json.loads((saved_folder / NOTES).read_text(encoding="utf-8"))


def saved_step(folder: Path) -> int | None:
    """How many steps the saved run had taken; None as in `load_progress`."""
    whole = _whole_folder(folder)
    return _step_of(whole) if whole else None


def _whole_folder(folder: Path) -> Path | None:
    folders = folder, folder.with_name(folder.name + ".before")
    return next((folder for folder in folders if _step_of(folder) is not None), None)


def _step_of(folder: Path) -> int | None:
    """None unless the files are there and as long as their contents say."""
    try:
        for file in {WEIGHTS, *(path.name for path in folder.glob("*.safetensors"))}:
            with safe_open(folder / file, "pt"):
                pass
        saved = torch.load(folder / STATE, map_location="cpu", weights_only=True, mmap=True)
        json.loads((folder / NOTES).read_text(encoding="utf-8"))
        return int(saved["step"])
    except Exception:  # the libraries raise errors of many types
        return None


def discard_progress(folder: Path) -> None:
    for name in (folder.name, folder.name + ".before", folder.name + ".partial"):
        shutil.rmtree(folder.with_name(name), ignore_errors=True)
