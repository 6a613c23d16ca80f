"""A training run in the record: its result is the same for a job that is resumed after its end."""

from dataclasses import replace
from pathlib import Path

from pipelines.cycle import run_job
from pipelines.prepare_job import prepare_job
from pipelines.project.project import Project
from pipelines.request import Request
from pipelines.training.training_run import RunResult, has_started, log_event_once
from recovery.lab import BASE

FEW = ("midtrain.max_steps=2", "midtrain.rows=2", "midtrain.mix.texts=0", "midtrain.mix.answers=0")


def test_a_job_that_is_run_again_after_its_checkpoint_has_the_same_result(docs: Path, tmp_path: Path) -> None:
    project = Project.open(tmp_path, str(BASE))
    job = prepare_job(project, Request("midtrain", docs=docs, assignments=FEW))
    result, again = run_job(project, job), run_job(project, job)
    assert isinstance(result, RunResult)
    assert result.tokens > 0
    assert isinstance(again, RunResult)
    assert replace(again, estimate=None) == replace(result, estimate=None)  # nothing is timed twice
    assert has_started(project, result.run)
    assert not list((project.home / "progress").glob("*"))


def test_a_resumed_run_does_not_log_an_event_again(tmp_path: Path) -> None:
    project = Project.open(tmp_path, str(BASE))
    run = project.tracker.start_run(project.id, "midtrain", None, {}, 0)
    assert not has_started(project, run)
    for message in ("first", "first", "second"):
        log_event_once(project, run, message)
        project.tracker.flush()
    assert sorted(event.message for event in project.reader.events(project.id)) == ["first", "second"]
