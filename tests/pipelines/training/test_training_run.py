"""A training run in the record: its result is the same for a job that is resumed after its end."""

from pathlib import Path

import pytest

from pipelines.cycle import run_job
from pipelines.job import Job
from pipelines.prepare_job import prepare_job
from pipelines.project.project import Project
from pipelines.request import Request
from pipelines.settings.schema import Distill, Settings
from pipelines.training.early_stopping import EarlyStopping
from pipelines.training.stage_context import Stage
from pipelines.training.stage_teachers import TrainingSource
from pipelines.training.training_run import RunResult, TrainingRun, has_started
from recovery.collapse import CollapseWatch
from recovery.lab import BASE
from recovery.models.students import load_student
from recovery.objectives import CrossEntropy
from recovery.recipes import recipe
from recovery.samples import Sample
from recovery.signals import Labels
from recovery.states import FixedRows
from recovery.train import Plan

FEW = ("midtrain.max_steps=2", "midtrain.rows=2", "midtrain.mix.texts=0", "midtrain.mix.answers=0")


def test_a_job_that_is_run_again_after_its_checkpoint_has_the_same_result(docs: Path, tmp_path: Path) -> None:
    project = Project.open(tmp_path, str(BASE))
    job = prepare_job(project, Request("midtrain", docs=docs, assignments=FEW))
    result, again = run_job(project, job), run_job(project, job)
    assert isinstance(result, RunResult)
    assert result.tokens > 0
    assert isinstance(again, RunResult)
    assert again == result
    assert has_started(project, result.run)
    assert not list((project.home / "progress").glob("*"))


def test_without_probes_a_collapse_costs_only_the_steps_since_the_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs = iter([""] * 25 + ["the rollouts repeat themselves"])
    monkeypatch.setattr(CollapseWatch, "after_step", lambda watch, record: next(signs))
    project = Project.open(tmp_path, str(BASE))
    run = project.tracker.start_run(project.id, "distill", None, {}, 0)
    training = TrainingRun(
        stage=Stage(project, Job("distill", Settings()), None),
        run=run,
        role="recovered",
        start=project.clean,
        student=load_student(str(BASE)),
        source=TrainingSource(str(BASE), None, False, recipe("sft")),
        states=FixedRows([Sample([5, 6, 7], [False, True, True])], rows=1),
        signal=Labels(),
        objective=CrossEntropy(),
        plan=Plan(40, 1e-4),
        monitor=EarlyStopping(Distill()),
    )
    result = training.run_to_end()
    assert result.steps == 25  # of 40 steps every fourth is reported
    assert result.stopped == "the rollouts repeat themselves; back at step 25, the last good state"
