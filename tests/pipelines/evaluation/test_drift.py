"""On the built-in base: a project with one fine-tune, the base with noise added to its weights."""

from pathlib import Path

import pytest
import torch

from db.tables import Checkpoint, RunInputs
from pipelines.evaluation import drift as drift_module
from pipelines.evaluation.drift import NewTask, _measure, checkpoint_drift, new_task
from pipelines.project.project import Project
from recovery.lab import BASE
from recovery.models.adapters import Adapter
from recovery.models.students import load_student, save_student
from tests.pipelines.options import data_of, recover

SMALL = {"PROMPTS": 16, "ITEMS": 2}
QUESTION = '{"question": "What is the colour of the Orvane bridge?", "answer": "green"}\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name, value in SMALL.items():
        monkeypatch.setattr(drift_module, name, value)
    monkeypatch.setattr("evals.drift.DIVERSITY_TOKENS", 32)
    student = load_student(str(BASE))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in student.model.parameters():
            weight += weight.std() * torch.randn(weight.shape, generator=generator)
    save_student(student, tmp_path / "noisy", {})
    (tmp_path / "questions.jsonl").write_text(QUESTION)
    return Project.open(tmp_path, str(BASE))


def drift_metrics(project: Project, checkpoint: Checkpoint, task: NewTask) -> dict[str, float]:
    results = checkpoint_drift(project, checkpoint, task)
    return {f"{r.task}/{name}": m.value for r in results for name, m in r.metrics.items()}


@pytest.mark.slow
def test_drift_is_measured_once_and_stored(
    project: Project, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = project.resolve(str(project.root / "noisy"))
    task = new_task(project, [checkpoint], project.root / "questions.jsonl")
    drift = drift_metrics(project, checkpoint, task)
    none = drift_metrics(project, project.clean, task)
    assert none["drift/kl_from_clean"] == pytest.approx(0, abs=1e-5)
    assert none["drift/kl_from_clean/new_task"] == pytest.approx(0, abs=1e-5)
    for name in ("kl_from_clean", "kl_from_clean/new_task"):
        assert drift[f"drift/{name}"] > none[f"drift/{name}"]
    assert drift["diversity/token_entropy"] > none["diversity/token_entropy"]
    repeated = drift_metrics(project, checkpoint, task)
    assert repeated == drift
    assert "Reusing the stored drift" in caplog.messages[-1]
    stored = project.reader.evaluations(checkpoint.id)
    assert [(e.suite, e.task) for e in stored] == [("drift", "drift"), ("drift", "diversity")]
    assert len(list((project.home / "cache").glob("prompts-*.json"))) == 1  # the same prompts for both
    assert all(e.settings["cost"]["tokens_written"] > 0 for e in stored)
    monkeypatch.setattr("pipelines.evaluation.drift.is_public_ifeval_available", lambda suites: True)
    monkeypatch.setattr("pipelines.evaluation.drift._measure", lambda *inputs: [])
    assert drift_metrics(project, checkpoint, task) == {}, "measured again, on other prompts"


@pytest.mark.slow
def test_compare_prints_the_drift_of_both_models(project: Project) -> None:
    models = [str(project.root / "noisy"), str(BASE)]
    command = ["compare", *models, "--suite", "behaviour", "--limit", "2", "--drift", "--json"]
    drift = data_of(recover(*command, "--project", project.root))["drift"]
    kls = [drift[side][0]["metrics"]["kl_from_clean"]["value"] for side in ("first", "second")]
    assert kls[0] > kls[1]
    assert [result["task"] for result in drift["first"]] == ["drift", "diversity"]


@pytest.fixture
def adapter(project: Project) -> Checkpoint:
    """An adapter with random weights on the base."""
    student = load_student(str(BASE), adapter=Adapter(rank=2))
    generator = torch.Generator().manual_seed(0)
    for name, weight in student.model.named_parameters():
        if ".lora_B." in name:
            weight.data.normal_(std=0.05, generator=generator)
    save_student(student, project.root / "adapter", {})
    return project.resolve(str(project.root / "adapter"))


def test_an_adapter_on_the_base_is_measured_with_one_model_in_memory(
    project: Project, adapter: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift_module, "FrozenTeacher", None)
    task = NewTask(project.root / "questions.jsonl")
    drift, _ = _measure(project, adapter, task, None, "transformers")
    assert drift.metrics["kl_from_clean"].value > 1e-3


def test_the_new_task_is_that_of_the_last_mid_training(project: Project) -> None:
    assert new_task(project, [project.clean]) == NewTask()
    questions = project.root / "questions.jsonl"
    run = project.tracker.start_run(project.id, "midtrain", inputs=RunInputs(questions=str(questions)))
    midtrained = project.tracker.checkpoint(project.id, "midtrained", project.root / "noisy", run=run)
    checkpoint = project.reader.checkpoint(midtrained)
    assert new_task(project, [project.clean, checkpoint]) == NewTask(questions)
