import os
from pathlib import Path

import pytest
import torch

from recovery.errors import RecoverError
from recovery.resume_state import load_progress, save_progress, saved_step
from recovery.teachers import EmaTeacher
from recovery.train import Plan, TrainState
from tests.full_disk import full_disk
from tests.models import tiny_student


def test_progress_of_other_weights_is_refused(tmp_path: Path) -> None:
    student = tiny_student(tmp_path / "model")
    state = TrainState.start(student, Plan(1, 1e-3))
    save_progress(tmp_path / "progress", student, state)
    next(iter(student.model.parameters())).requires_grad_(False)
    with pytest.raises(RecoverError, match="other weights"):
        load_progress(tmp_path / "progress", student, state)


def test_an_interrupted_save_leaves_the_previous_one(tmp_path: Path) -> None:
    student = tiny_student(tmp_path / "model")
    state = TrainState.start(student, Plan(9, 1e-3))
    state.step = 4
    save_progress(tmp_path / "progress", student, state, {"probes": [1.5, None]})
    (tmp_path / "progress").rename(tmp_path / "progress.before")  # killed between the two renames
    (tmp_path / "progress.partial").mkdir()
    again = TrainState.start(student, Plan(9, 1e-3))
    again.between_draws = False
    assert saved_step(tmp_path / "progress") == 4
    assert load_progress(tmp_path / "progress", student, again) == {"probes": [1.5, None]}
    assert (again.step, again.between_draws) == (4, True)
    assert load_progress(tmp_path / "elsewhere", student, again) is None


@pytest.mark.parametrize("name", ["learning.safetensors", "average.safetensors", "state.pt", "notes.json"])
@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_state_is_passed_over(tmp_path: Path, name: str, cut: bool) -> None:
    student, folder = tiny_student(tmp_path / "model"), tmp_path / "progress"
    state, average = TrainState.start(student, Plan(9, 1e-3)), EmaTeacher(student)
    save_progress(folder, student, state, {"probes": []}, average)
    os.truncate(folder / name, (folder / name).stat().st_size // 2 if cut else 0)
    weight = next(iter(student.model.parameters()))
    weight.data += 1
    before = weight.clone()
    assert saved_step(folder) is None
    assert load_progress(folder, student, state, average) is None
    assert torch.equal(weight, before), "nothing of it was loaded"
    save_progress(tmp_path / "earlier", student, state, {"probes": [1]}, average)
    (tmp_path / "earlier").rename(tmp_path / "progress.before")
    assert load_progress(folder, student, state, average) == {"probes": [1]}


@pytest.mark.parametrize(
    ("largest", "reason"), [("notes.json", "File too large"), ("learning.safetensors", "the disk may be full")]
)
def test_a_state_that_cannot_be_written_is_one_sentence_and_leaves_the_previous_one(
    tmp_path: Path, largest: str, reason: str
) -> None:
    student, folder = tiny_student(tmp_path / "model"), tmp_path / "progress"
    state = TrainState.start(student, Plan(9, 1e-3))
    for parameter in student.trainable():
        parameter.grad = torch.ones_like(parameter)
    state.optimizer.step()  # from now on its state is larger than the weights
    save_progress(folder, student, state, {"probes": []})
    limit = (folder / largest).stat().st_size
    message = rf"Cannot write to {folder} \({reason}\)\. Free space there, and go on with `recover resume`\."
    with full_disk(limit), pytest.raises(RecoverError, match=message):
        save_progress(folder, student, state, {"probes": [1]})
    assert not list(tmp_path.glob("*.partial"))
    assert load_progress(folder, student, state) == {"probes": []}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_run_saved_on_a_gpu_resumes_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    student = tiny_student(tmp_path / "model")
    plan = Plan(9, 1e-3)
    state = TrainState.start(student, plan)
    state.optimizer.param_groups[0]["fused"] = True  # as on a GPU
    for parameter in student.trainable():
        parameter.grad = torch.ones_like(parameter)
    state.optimizer.step()
    with monkeypatch.context() as on_a_gpu:
        on_a_gpu.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        save_progress(tmp_path / "progress", student, state)
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(tmp_path / "progress" / "state.pt")
    again = TrainState.start(student, plan)
    assert load_progress(tmp_path / "progress", student, again) is not None
    ours, theirs = (list(s.optimizer.state.values()) for s in (again, state))
    assert all(torch.equal(a["exp_avg"], b["exp_avg"]) for a, b in zip(ours, theirs, strict=True))
    again.optimizer.step()
