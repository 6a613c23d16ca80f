"""Two processes over gloo train as one does: the same losses, the same replies, a state that either resumes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

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

pytestmark = pytest.mark.slow

LABELLED = [Sample([3 + i] * (4 + 3 * i), [False] * 2 + [True] * (2 + 3 * i), use_labels=True) for i in range(7)]
STEPS = 4
# By default Adam divides by a gradient's size, however small: then the rounding of gradients near zero is as large as
# an error, which it was on a processor with AMX, and a gradient of the wrong size goes unseen.
ADAM = partial(torch.optim.AdamW, eps=1e-3)
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

    def run(self, folder: Path, last: int = STEPS) -> dict[str, Any]:
        """Train up to step `last`: from the state that is saved in the folder, if there is one, and saving there."""
        folder.mkdir(exist_ok=True)
        student, signal = self.load()
        prompts = [
            Prompt(t, student.chat.prompt(t), domain=d) for t, d in (("a", None), ("bcd", "other"), ("ef", None))
        ]
        rollouts = Rollouts(prompts, SharedEngine(student), rows=4, max_new_tokens=12)
        states = Mixture(*([rollouts] if self.rollouts else []), FixedRows(LABELLED, rows=3))
        # At a high rate two processes draw other tokens.
        plan = Plan(STEPS, 3e-4, tokens_at_once=24, checkpointing=True, decay="linear")
        objective = Divergence(1.0) if self.teacher else CrossEntropy()
        records, replies = [], []
        with (
            patch("torch.optim.AdamW", ADAM),
            training_state(student, signal, objective, plan, self.load) as state,
        ):
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


Part = tuple[Case, Path, int]  # of a training: in which folder, and up to which step


def main(folder: Path) -> None:
    parts = torch.load(folder / "parts.pt", weights_only=False)
    join()
    if rank():
        with patch("torch.optim.AdamW", ADAM):
            follow()
    else:
        (folder / "results.json").write_text(json.dumps([Case.run(*part) for part in parts]))
        dismiss()
    leave()


def run_on_two(folder: Path, parts: list[Part]) -> list[dict[str, Any]]:
    """All of them on the same two processes, whose start takes longer than a part."""
    torch.save(parts, folder / "parts.pt")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "tests.recovery.test_processes", str(folder)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())
    return results


CASES: dict[str, Callable[[Path], Case]] = {
    "labels, tied head": lambda p: Case(str(save_tiny(p / "s")), rollouts=False),
    "router, untied head": lambda p: Case(
        str(save_tiny(p / "s", tied=False)), str(save_tiny(p / "t", seed=1, tied=False, padding=5))
    ),
    "adapter": lambda p: Case(str(save_tiny(p / "s")), "base", Adapter(rank=3)),
    "adapter on bfloat16": lambda p: Case(
        str(save_tiny(p / "s")), None, Adapter(rank=3), rollouts=False, frozen=torch.bfloat16
    ),
}
BROKEN = [(2, 1, 2), (1, 2, 2), (2, 2, 2), (2, 2, 0)]  # processes before, processes after, steps before


class Trained(NamedTuple):
    on_one: dict[str, dict[str, Any]]
    on_two: dict[str, dict[str, Any]]
    halves: dict[tuple[tuple[int, int, int], bool], dict[str, Any]]  # before and after each break
    folder: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("processes")
    for name in CASES:
        (folder / name).mkdir()
    cases = {name: make(folder / name) for name, make in CASES.items()}
    alone = {name: case.run(folder / name / "one") for name, case in cases.items()}
    whole = [(case, folder / name / "two", STEPS) for name, case in cases.items()]

    def half(broken: tuple[int, int, int], resumed: bool) -> Part:
        at = folder / "-".join(map(str, broken))
        return cases["router, untied head"], at, STEPS if resumed else broken[2]

    halves = [(broken, resumed) for broken in BROKEN for resumed in (False, True)]
    on_two = [(broken, resumed) for broken, resumed in halves if broken[resumed] == 2]
    before = {(broken, False): Case.run(*half(broken, False)) for broken in BROKEN if broken[0] == 1}
    results = run_on_two(folder, [*whole, *(half(*each) for each in on_two)])
    after = {(broken, True): Case.run(*half(broken, True)) for broken in BROKEN if broken[1] == 1}
    ran = before | dict(zip(on_two, results[len(whole) :], strict=True)) | after
    return Trained(alone, dict(zip(cases, results, strict=False)), ran, folder)


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours["replies"] == theirs["replies"]
    for a, b in zip(ours["records"], theirs["records"], strict=True):
        assert a == pytest.approx(b, abs=1e-4, rel=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_losses_and_the_replies_of_one(trained: Trained, name: str) -> None:
    same(trained.on_two[name], trained.on_one[name])
    weights = [load_student(str(trained.folder / name / n / "checkpoint")).model.state_dict() for n in ("one", "two")]
    for key, tensor in weights[0].items():
        assert float((tensor - weights[1][key]).norm()) < 3e-4 * float(tensor.norm()), key


@pytest.mark.parametrize("broken", BROKEN)
def test_a_state_that_some_processes_saved_is_resumed_by_others(trained: Trained, broken: tuple[int, int, int]) -> None:
    first, second = (trained.halves[broken, resumed] for resumed in (False, True))
    records = first["records"] + second["records"]
    same({"records": records, "replies": second["replies"]}, trained.on_one["router, untied head"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
