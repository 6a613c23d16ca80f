"""Kept teacher outputs: what is read again is what was computed, and only where nothing has changed."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from recovery.engines.served_model import Probe
from recovery.kept_outputs import KeptOutputs, KeptTeacher, Source
from recovery.losses.objectives import Divergence
from recovery.models.adapters import Adapter
from recovery.models.students import Student, load_student
from recovery.samples import Batch, Sample
from recovery.server_teacher import ServerTeacher
from recovery.signals import TeacherSignal
from recovery.states import FixedRows
from recovery.teachers import AdapterOffTeacher, FrozenTeacher, Teacher
from recovery.train import Plan, train
from tests.models import save_tiny
from tests.recovery.engines.small_server import SmallServer, serving

ROWS = [Sample(list(range(5 + i, 15 + 3 * i)), [False, False] + [True] * (8 + 2 * i)) for i in range(6)]
ROLLOUTS = [replace(row, logprobs=[-6.0] * row.target_count) for row in ROWS]
LIMIT = 1e6


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("teacher"), seed=1))


@pytest.fixture(params=["model", "adapter off", "server"])
def pair(request: pytest.FixtureRequest, reference: str, tmp_path: Path) -> Iterator[tuple[Student, Source]]:
    """A student, and a teacher of each kind."""
    if request.param == "adapter off":
        student = load_student(reference, adapter=Adapter(rank=2))
        for parameter in student.trainable():
            parameter.data += 0.1
        yield student, AdapterOffTeacher(student)
        return
    student = load_student(str(save_tiny(tmp_path / "student", seed=3)))
    if request.param == "model":
        teacher = FrozenTeacher(reference)
        teacher.bind_student(student)
        yield student, teacher
        return
    own = Probe(student.chat).own(load_student(reference, frozen=True))
    with serving(SmallServer(load_student(reference, frozen=True))) as named:
        yield student, ServerTeacher(student, named, reference, own, timeout=30.0, pauses=(0.0, 0.1))


def losses(student: Student, teacher: Teacher, rows: list[Sample], *, bf16: bool = False) -> list[float]:
    """Of steps that change nothing; each row comes twice in five steps."""
    plan = Plan(5, 0.0, tokens_at_once=40, bf16=bf16)
    states = FixedRows(rows, rows=len(rows) * 2 // 5, seed=4)
    return [step.loss for step in train(student, states, TeacherSignal(teacher), Divergence(0.5), plan)]


@pytest.mark.parametrize("bf16", [False, True])
def test_losses_are_the_same_when_rows_are_computed_read_and_read_in_part(
    pair: tuple[Student, Source], tmp_path: Path, bf16: bool
) -> None:
    student, teacher = pair
    rows = ROWS[:5]
    without = pytest.approx(losses(student, teacher, rows, bf16=bf16), abs=2e-2 if bf16 else 1e-6)
    first = KeptOutputs(tmp_path / "kept", LIMIT)
    computed = losses(student, KeptTeacher(teacher, first, ["a"]), rows, bf16=bf16)
    assert computed == without
    assert (first.rows, first.reused) == (10, 5)  # each comes twice
    second = KeptOutputs(tmp_path / "kept", LIMIT)
    assert losses(student, KeptTeacher(teacher, second, ["a"]), rows, bf16=bf16) == computed  # bit for bit
    assert (second.rows, second.reused) == (10, 10)
    for file in sorted((tmp_path / "kept").iterdir())[:2]:
        file.unlink()
    part = KeptTeacher(teacher, KeptOutputs(tmp_path / "kept", LIMIT), ["a"])
    assert losses(student, part, rows, bf16=bf16) == without
    assert part.kept.reused == 8


def test_outputs_are_those_of_their_rows_in_a_batch_with_rollouts(reference: str, tmp_path: Path) -> None:
    teacher = FrozenTeacher(reference)
    kept = KeptTeacher(teacher, KeptOutputs(tmp_path, LIMIT), ["a"])
    kept.distribution(Batch.collate(ROWS[1:3], 0))
    batch = Batch.collate([ROLLOUTS[0], ROWS[2], ROWS[3], ROLLOUTS[1], ROWS[1]], 0)
    expected = teacher.distribution(batch).logprobs(slice(None))
    torch.testing.assert_close(kept.distribution(batch).logprobs(slice(None)), expected, atol=1e-5, rtol=1e-5)
    assert kept.kept.reused == 2
    assert len(list(tmp_path.iterdir())) == 3  # no rollout
    read, computed = [ROWS[2], ROWS[1]], [ROLLOUTS[0], ROWS[3], ROLLOUTS[1]]
    assert kept.flops([*read, *computed]) == pytest.approx(teacher.flops(computed))


def test_other_weights_targets_and_precision_are_other_outputs(reference: str, tmp_path: Path) -> None:
    teacher, outputs = FrozenTeacher(reference), KeptOutputs(tmp_path, LIMIT)
    KeptTeacher(teacher, outputs, ["a"]).distribution(Batch.collate(ROWS[:1], 0))
    KeptTeacher(teacher, outputs, ["b"]).distribution(Batch.collate(ROWS[:1], 0))
    fewer = replace(ROWS[0], targets=[False] * 4 + ROWS[0].targets[4:])
    KeptTeacher(teacher, outputs, ["a"]).distribution(Batch.collate([fewer], 0))
    with torch.autocast("cpu", torch.bfloat16):
        KeptTeacher(teacher, outputs, ["a"]).distribution(Batch.collate(ROWS[:1], 0))
    assert (outputs.rows, outputs.reused) == (4, 0)
    KeptTeacher(teacher, outputs, ["b"]).distribution(Batch.collate(ROWS[:1], 0))
    assert outputs.reused == 1


def test_a_torn_file_is_computed_again(reference: str, tmp_path: Path) -> None:
    teacher, batch = FrozenTeacher(reference), Batch.collate(ROWS[:3], 0)
    KeptTeacher(teacher, KeptOutputs(tmp_path, LIMIT), ["a"]).distribution(batch)
    whole = {file: file.read_bytes() for file in tmp_path.iterdir()}
    first, second, _ = whole
    first.write_bytes(whole[first][:-7])
    second.write_bytes(b"")
    (tmp_path / "left.partial").write_bytes(b"of a killed process")
    again = KeptTeacher(teacher, KeptOutputs(tmp_path, LIMIT), ["a"])
    expected = teacher.distribution(batch).logprobs(slice(None))
    torch.testing.assert_close(again.distribution(batch).logprobs(slice(None)), expected, atol=1e-5, rtol=1e-5)
    assert again.kept.reused == 1
    assert {file.name: len(file.read_bytes()) for file in tmp_path.iterdir()} == {
        file.name: len(content) for file, content in whole.items()
    }


def test_the_folder_is_never_larger_than_its_limit(tmp_path: Path) -> None:
    def size() -> int:
        return sum(file.stat().st_size for file in tmp_path.iterdir())

    row = {"hidden": torch.zeros(100, 8)}
    earlier = KeptOutputs(tmp_path, 1e6)
    for age, name in enumerate(["old", "older", "oldest"]):
        earlier.put(name, row)
        os.utime(tmp_path / f"{name}.safetensors", (1e9 - age, 1e9 - age))
    each = size() // 3
    now = KeptOutputs(tmp_path, 3.5 * each)
    assert now.get("older") is not None
    now.put("new", row)  # in place of the oldest
    assert sorted(file.stem for file in tmp_path.iterdir()) == ["new", "old", "older"]
    now.put("newer", row)
    now.put("newest", row)  # what this process has used stays
    assert sorted(file.stem for file in tmp_path.iterdir()) == ["new", "newer", "older"]
    assert size() <= now.limit
    assert str(now) == "1 rows, 1 reused; 1 did not fit"
    KeptOutputs(tmp_path, each)
    assert size() == each


def test_a_full_disk_ends_no_training(reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: Path, content: bytes) -> None:
        file.touch()
        raise OSError(28, "No space left on device")

    teacher, batch = FrozenTeacher(reference), Batch.collate(ROWS[:2], 0)
    kept = KeptTeacher(teacher, KeptOutputs(tmp_path, LIMIT), ["a"])
    monkeypatch.setattr(Path, "write_bytes", fail)
    expected = teacher.distribution(batch).logprobs(slice(None))
    assert torch.equal(kept.distribution(batch).logprobs(slice(None)), expected)
    assert (kept.kept.left_out, list(tmp_path.iterdir())) == (2, [])
