"""Two processes over gloo train as one does: the same losses, the same replies, a state that either resumes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from recovery.distributed import join, leave, rank
from recovery.models.adapters import Adapter
from recovery.models.students import Student, load_student, save_student
from recovery.objectives import CrossEntropy, Divergence
from recovery.processes import SharedEngine, dismiss, follow, training_state
from recovery.resume_state import load_progress, save_progress
from recovery.samples import Sample
from recovery.signals import Labels, Signal, TeacherSignal
from recovery.states import FixedRows, Mixture, Prompt, Rollouts
from recovery.teachers import AdapterOffTeacher, FrozenTeacher, RouterTeacher
from recovery.train import Plan, train
from tests.models import save_tiny

LABELLED = [Sample([3 + i] * (4 + 3 * i), [False] * 2 + [True] * (2 + 3 * i), use_labels=True) for i in range(7)]
STEPS = 4
COMPARED = ("loss", "kl", "entropy", "grad_norm", "density", "target_tokens", "rollout_length", "flops")


@dataclass(frozen=True)
class Case:
    """A training, small enough for a test."""

    student: str
    teacher: str | None = None  # a folder; none: labels alone
    adapter: Adapter | None = None
    rollouts: bool = True
    frozen: torch.dtype = torch.float32  # below the adapter

    def load(self) -> tuple[Student, Signal]:
        student = load_student(self.student, adapter=self.adapter, dtype=self.frozen)
        if self.teacher is None:
            return student, Labels()
        if self.adapter:
            return student, TeacherSignal(AdapterOffTeacher(student, self.student))
        teachers = [FrozenTeacher(path) for path in (self.teacher, self.student)]
        for teacher in teachers:
            teacher.bind_student(student)
        return student, TeacherSignal(RouterTeacher(teachers[0], {"other": teachers[1]}))

    def run(self, folder: Path, first: int, last: int) -> dict[str, Any]:
        """Train from step `first` to `last`: from the state that is saved in the folder, and saving there."""
        student, signal = self.load()
        prompts = [
            Prompt(t, student.chat.prompt(t), domain=d) for t, d in (("a", None), ("bcd", "other"), ("ef", None))
        ]
        rollouts = Rollouts(prompts, SharedEngine(student), rows=4, max_new_tokens=12)
        states = Mixture(*([rollouts] if self.rollouts else []), FixedRows(LABELLED, rows=3))
        # Adam divides by a gradient's size and so enlarges rounding: at a high rate two processes draw other tokens.
        plan = Plan(STEPS, 3e-4, tokens_at_once=24, checkpointing=True, decay="linear")
        objective = Divergence(1.0) if self.teacher else CrossEntropy()
        records, replies = [], []
        with training_state(student, signal, objective, plan, self) as state:
            assert (load_progress(folder / "progress", student, state) is not None) == (folder / "progress").exists()
            for record in train(student, states, signal, objective, plan, state) if last else ():
                records.append({k: v for k, v in record.metrics().items() if k in COMPARED})
                if state.step == last:
                    break
            if self.teacher and self.rollouts:
                replies = [row.tokens for row in rollouts.draw(student, 99)]
                state.report(student, signal, rollouts.draw(student, 99)[:1])
            save_progress(folder / "progress", student, state)
        save_student(student, folder / "checkpoint", {})
        return {"records": records, "replies": replies}


def main(folder: Path, first: int, last: int) -> None:
    case = torch.load(folder / "case.pt", weights_only=False)
    join()
    if rank():
        follow()
    else:
        (folder / "result.json").write_text(json.dumps(case.run(folder, first, last)))
        dismiss()
    leave()


def on_two(case: Case, folder: Path, first: int = 0, last: int = STEPS) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    torch.save(case, folder / "case.pt")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "tests.recovery.test_processes", str(folder), str(first), str(last)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


def on_one(case: Case, folder: Path, first: int = 0, last: int = STEPS) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    return case.run(folder, first, last)


CASES: dict[str, Callable[[Path], Case]] = {
    "labels, tied head": lambda p: Case(str(save_tiny(p / "s")), rollouts=False),
    "router, untied head": lambda p: Case(
        str(save_tiny(p / "s", tied=False)), str(save_tiny(p / "t", seed=1, tied=False, padding=5))
    ),
    "adapter": lambda p: Case(str(save_tiny(p / "s")), "base", Adapter(rank=3)),
}


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours["replies"] == theirs["replies"]
    for a, b in zip(ours["records"], theirs["records"], strict=True):
        assert a == pytest.approx(b, abs=1e-4, rel=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("router, untied head", marks=pytest.mark.slow),
        pytest.param("adapter", marks=pytest.mark.slow),
        pytest.param("labels, tied head", marks=pytest.mark.release),
    ],
)
def test_two_processes_have_the_losses_and_the_replies_of_one(tmp_path: Path, name: str) -> None:
    case = CASES[name](tmp_path)
    same(on_two(case, tmp_path / "two"), on_one(case, tmp_path / "one"))
    weights = [load_student(str(tmp_path / n / "checkpoint")).model.state_dict() for n in ("one", "two")]
    for key, tensor in weights[0].items():
        # Adam divides tiny gradients by their size, so single weights may differ.
        assert float((tensor - weights[1][key]).norm()) < 1e-3 * float(tensor.norm()), key


@pytest.mark.release
def test_weights_below_an_adapter_are_shared_out_in_bfloat16_too(tmp_path: Path) -> None:
    case = Case(str(save_tiny(tmp_path / "s")), None, Adapter(rank=3), rollouts=False, frozen=torch.bfloat16)
    same(on_two(case, tmp_path / "two"), on_one(case, tmp_path / "one"))


@pytest.mark.parametrize(
    ("before", "after", "step"),
    [
        pytest.param(on_two, on_one, 2, marks=pytest.mark.slow),
        pytest.param(on_one, on_two, 2, marks=pytest.mark.release),
        pytest.param(on_two, on_two, 2, marks=pytest.mark.release),
        pytest.param(on_two, on_two, 0, marks=pytest.mark.release),
    ],
)
def test_a_state_that_some_processes_saved_is_resumed_by_others(
    tmp_path: Path, before: Any, after: Any, step: int
) -> None:
    case = CASES["router, untied head"](tmp_path)
    unbroken = on_one(case, tmp_path / "unbroken")
    first = before(case, tmp_path / "broken", 0, step)
    second = after(case, tmp_path / "broken", step, STEPS)
    same({"records": first["records"] + second["records"], "replies": second["replies"]}, unbroken)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
