"""A run that is killed and resumed ends with the same weights, bit for bit, as an uninterrupted one."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from recovery.errors import RecoverError
from recovery.resume_state import load_progress, save_progress
from recovery.train import Plan, TrainState
from tests.models import save_tiny, tiny_student

RUN = """
import sys
from pathlib import Path
import torch
from recovery.engines.transformers import TransformersEngine
from recovery.resume_state import load_progress, save_progress
from recovery.recipes import objective_of, recipe, signal_of
from recovery.samples import Sample
from recovery.states import Documents, FixedRows, Prompt, Rollouts
from recovery.models.students import load_student, save_student
from recovery.teachers import FrozenTeacher
from recovery.train import Plan, TrainState, train

torch.set_num_threads(1)
kind, model, teacher, folder = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
student, chosen = load_student(model), recipe(kind)
chats = [[{"role": "user", "content": f"say {i}"}, {"role": "assistant", "content": "abc" * i}] for i in range(1, 9)]
prompts = [Prompt(f"say {i}", student.chat.prompt(f"say {i}")) for i in range(8)]
states = {
    "documents": lambda: Documents([[5, 6, 7] * 30] * 6, end_id=0, window=16, rows=4),
    "conversations": lambda: FixedRows([Sample(*student.chat.conversation(chat)) for chat in chats], rows=4),
    "none": lambda: Rollouts(prompts, TransformersEngine(student), rows=8, group=chosen.group, max_new_tokens=12),
}[chosen.data]()
signal = signal_of(chosen, FrozenTeacher(teacher), lambda s: float(sum(s.tokens) % 5))
plan = Plan(30, 1e-2, warmup=3, decay="cosine")
state = TrainState.start(student, plan)
load_progress(folder / "progress", student, state)
for record in train(student, states, signal, objective_of(chosen), plan, state):
    save_progress(folder / "progress", student, state)
    print(record.step, flush=True)
save_student(student, folder / "final", {})
"""


@pytest.mark.parametrize(
    "kind", ["midtrain", "opd", *(pytest.param(kind, marks=pytest.mark.release) for kind in ("sft", "grpo"))]
)
def test_a_killed_and_resumed_run_gives_the_same_bits(tmp_path: Path, kind: str) -> None:
    script = tmp_path / "run.py"
    script.write_text(RUN)
    model, teacher = save_tiny(tmp_path / "model", seed=1), save_tiny(tmp_path / "teacher", seed=2)

    def start(folder: Path) -> subprocess.Popen[str]:
        folder.mkdir(exist_ok=True)
        command = [sys.executable, str(script), kind, str(model), str(teacher), str(folder)]
        root = str(Path(__file__).parents[2])
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root})

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    uninterrupted, killed = start(whole), start(broken)
    assert killed.stdout is not None
    last = random.randrange(3, 20)
    for line in killed.stdout:
        if int(line) == last:
            time.sleep(0.011)  # within the next step, or while it is saved
            killed.send_signal(signal.SIGKILL)
            break
    later = killed.stdout.read().split()  # on a busy machine it has gone further
    last = int(later[-1]) if later else last
    killed.wait()
    assert not (broken / "final").exists()
    resumed = start(broken)
    output, _ = resumed.communicate()
    assert resumed.returncode == 0
    assert int(output.split()[0]) in (last + 1, last + 2), "it did not resume at the saved step"
    assert uninterrupted.wait() == 0
    ours, theirs = (load_file(folder / "final" / "model.safetensors") for folder in (whole, broken))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


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
    assert load_progress(tmp_path / "progress", student, again) == {"probes": [1.5, None]}
    assert again.step == 4
    assert load_progress(tmp_path / "elsewhere", student, again) is None


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
