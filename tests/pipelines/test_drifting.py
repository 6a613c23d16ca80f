"""On the built-in base: a project whose one fine-tune is the base, shaken."""

from pathlib import Path

import pytest
import torch

from db.views import Checkpoint
from pipelines import drifting
from pipelines.drifting import NewTask, drift_of, new_task
from pipelines.project import Project
from recovery.lab import BASE
from recovery.students import load_student, save_student

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


def measured(project: Project, checkpoint: Checkpoint, task: NewTask) -> tuple[dict[str, float], list[str]]:
    said: list[str] = []
    found = drift_of(project, checkpoint, task, said.append)
    return {f"{r.task}/{name}": m.value for r in found for name, m in r.metrics.items()}, said


def test_drift_is_measured_from_the_base_once_and_kept(project: Project) -> None:
    checkpoint = project.resolve(str(project.root / "shaken"))
    task = new_task(project, [checkpoint], project.root / "questions.jsonl")
    moved, _ = measured(project, checkpoint, task)
    still, _ = measured(project, project.clean, task)
    assert still["drift/kl_from_clean"] == pytest.approx(0, abs=1e-5)
    assert still["drift/kl_from_clean/new_task"] == pytest.approx(0, abs=1e-5)
    for name in ("kl_from_clean", "kl_from_clean/new_task", "mmd/lexical", "mmd/hidden"):
        assert moved[f"drift/{name}"] > still[f"drift/{name}"]
    assert moved["diversity/token_entropy"] > still["diversity/token_entropy"]
    again, said = measured(project, checkpoint, task)
    assert again == moved
    assert "measured before" in said[0]
    on_record = project.reader.evaluations(checkpoint.id)
    assert [(e.suite, e.task) for e in on_record] == [("drift", "drift"), ("drift", "diversity")]
    assert len(list((project.home / "cache").glob("prompts-*.json"))) == 1  # both were asked the same
    assert all(e.settings["cost"]["tokens_written"] > 0 for e in on_record)


def test_the_new_task_is_what_was_read_last(project: Project) -> None:
    assert new_task(project, [project.clean]) == NewTask()
    questions = project.root / "questions.jsonl"
    run = project.tracker.start_run(project.id, "midtrain", None, {"questions": str(questions)}, 0)
    made = project.tracker.checkpoint(project.id, "midtrained", project.root / "shaken", run=run)
    checkpoint = project.reader.checkpoint(made)
    assert checkpoint is not None
    assert new_task(project, [project.clean, checkpoint]) == NewTask(questions)
