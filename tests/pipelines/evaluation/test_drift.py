"""On the built-in base: a project whose one fine-tune is the base, shaken."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from db.views import Checkpoint
from pipelines.evaluation import drift as drifting
from pipelines.evaluation.drift import NewTask, _both, _measured, _writing, drift_of, new_task
from pipelines.project.project import Project
from recovery.lab import BASE
from recovery.models.adapters import Adapter
from recovery.models.students import Student, load_student, save_student

SMALL = {"PROMPTS": 16, "ITEMS": 2, "MAX_NEW_TOKENS": 32}
QUESTION = '{"question": "What is the colour of the Orvane bridge?", "answer": "green"}\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name, value in SMALL.items():
        monkeypatch.setattr(drifting, name, value)
    student = load_student(str(BASE))
    dice = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in student.model.parameters():
            weight += weight.std() * torch.randn(weight.shape, generator=dice)
    save_student(student, tmp_path / "shaken", {})
    (tmp_path / "questions.jsonl").write_text(QUESTION)
    return Project.open(tmp_path, str(BASE))


def measured(project: Project, checkpoint: Checkpoint, task: NewTask) -> dict[str, float]:
    found = drift_of(project, checkpoint, task)
    return {f"{r.task}/{name}": m.value for r in found for name, m in r.metrics.items()}


def test_drift_is_measured_from_the_base_once_and_kept(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = project.resolve(str(project.root / "shaken"))
    task = new_task(project, [checkpoint], project.root / "questions.jsonl")
    moved = measured(project, checkpoint, task)
    still = measured(project, project.clean, task)
    assert still["drift/kl_from_clean"] == pytest.approx(0, abs=1e-5)
    assert still["drift/kl_from_clean/new_task"] == pytest.approx(0, abs=1e-5)
    for name in ("kl_from_clean", "kl_from_clean/new_task", "mmd/lexical", "mmd/hidden"):
        assert moved[f"drift/{name}"] > still[f"drift/{name}"]
    assert moved["diversity/token_entropy"] > still["diversity/token_entropy"]
    again = measured(project, checkpoint, task)
    assert again == moved
    assert "measured before" in caplog.messages[-1]
    on_record = project.reader.evaluations(checkpoint.id)
    assert [(e.suite, e.task) for e in on_record] == [("drift", "drift"), ("drift", "diversity")]
    assert len(list((project.home / "cache").glob("prompts-*.json"))) == 1  # both were asked the same
    assert all(e.settings["cost"]["tokens_written"] > 0 for e in on_record)


@pytest.fixture
def adapter(project: Project) -> Checkpoint:
    """The base under an adapter that learned something."""
    student = load_student(str(BASE), adapter=Adapter(rank=2))
    dice = torch.Generator().manual_seed(0)
    for name, weight in student.model.named_parameters():
        if ".lora_B." in name:
            weight.data.normal_(std=0.05, generator=dice)
    save_student(student, project.root / "adapter", {})
    return project.resolve(str(project.root / "adapter"))


def test_an_adapter_on_the_base_is_measured_with_one_model_in_memory(
    project: Project, adapter: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def counted(path: str) -> Student:
        loaded.append(path)
        return load_student(path, frozen=True)

    monkeypatch.setattr(drifting, "load_frozen", counted)
    task = NewTask(project.root / "questions.jsonl")
    shared = _measured(project, adapter, task, None, "transformers")
    assert loaded == [adapter.path]
    shutil.rmtree(project.home / "cache")
    monkeypatch.setattr(drifting, "same_model", lambda one, other: False)
    apart = _measured(project, adapter, task, None, "transformers")
    assert loaded == [adapter.path, adapter.path, project.base]
    for one, other in zip(shared, apart, strict=True):
        assert {n: m.value for n, m in one.metrics.items()} == {n: m.value for n, m in other.metrics.items()}
    assert shared[0].metrics["kl_from_clean"].value > 1e-3


def test_vllm_is_handed_the_base_itself_and_not_what_lies_beneath_an_adapter(
    project: Project, adapter: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[str, bool]] = []

    @contextmanager
    def engine(student: Student, name: str) -> Iterator[None]:
        served.append((student.path, student.has_adapter))
        yield

    monkeypatch.setattr(drifting, "open_engine", engine)
    for student in _both(adapter.path, project.base):
        for name in ("transformers", "vllm"):
            with _writing(student, name):
                pass
    of_adapter, of_base = (adapter.path, True), (project.base, True)
    assert served == [of_adapter, of_adapter, of_base, (project.base, False)]


def test_the_new_task_is_what_was_read_last(project: Project) -> None:
    assert new_task(project, [project.clean]) == NewTask()
    questions = project.root / "questions.jsonl"
    run = project.tracker.start_run(project.id, "midtrain", None, {"questions": str(questions)}, 0)
    made = project.tracker.checkpoint(project.id, "midtrained", project.root / "shaken", run=run)
    checkpoint = project.reader.checkpoint(made)
    assert checkpoint is not None
    assert new_task(project, [project.clean, checkpoint]) == NewTask(questions)
