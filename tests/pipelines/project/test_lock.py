import errno
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer

import pytest
from filelock import FileLock
from sqlalchemy import update

from db import tables
from db.tables import DONE, TOTAL, RunInputs, RunKind
from db.tracker import RunEnd
from pipelines.cli.inspect import _progress_text
from pipelines.cycle import saved_job
from pipelines.job import Job
from pipelines.project import lock
from pipelines.project.lock import (
    command_lock,
    interrupted_jobs,
    project_lock,
    published_progress,
    running_command,
    update_holder,
)
from pipelines.project.project import Project
from pipelines.project.runs import last_time, recorded_run
from pipelines.settings.schema import Settings
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.progress import track
from tests.pipelines.options import answer, refusal
from tests.pipelines.project.checkpoints import holding


def test_a_second_command_learns_who_holds_the_lock_and_a_killed_process_releases_it(tmp_path: Path) -> None:
    with holding('project_lock(folder, "recover cycle --docs there")', tmp_path) as holder:
        with (
            pytest.raises(RecoverError, match=rf"`recover cycle --docs there` \(process {holder.pid} on"),
            project_lock(tmp_path, "x"),
        ):
            pass
        holder.kill()
        holder.wait()
    with project_lock(tmp_path, "x"):
        assert "x" in (tmp_path / "lock.json").read_text()
    assert not (tmp_path / "lock.json").exists()


def test_progress_that_cannot_be_stored_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with project_lock(tmp_path, "recover cycle"):
        monkeypatch.setattr(lock, "write_atomic", fail)
        update_holder(tmp_path, job="abc")
        update_holder(tmp_path, job="abc")
    (line,) = [record.message for record in caplog.records]
    assert line.startswith(f"Cannot store the progress in {tmp_path} (")
    assert line.endswith("No space left on device); status and dashboard will not show it")


def test_a_look_at_the_lock_refuses_no_command(tmp_path: Path) -> None:
    look = FileLock(tmp_path / "lock", thread_local=False)
    look.acquire()
    Timer(0.1, look.release).start()
    with project_lock(tmp_path, "recover cycle"):
        pass


def test_a_job_that_ends_while_the_jobs_are_read_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "one.json").write_text('{"command": "cycle", "current": 1}')
    (tmp_path / "jobs" / "gone.json").symlink_to(tmp_path / "nowhere")
    [job] = interrupted_jobs(tmp_path, None)
    assert job.id == "one"
    files = [tmp_path / "jobs" / name for name in ("gone.json", "one.json")]
    monkeypatch.setattr(lock, "job_files", lambda home: files)
    assert interrupted_jobs(tmp_path, None) == [job]


def test_only_folders_that_were_created_for_the_lock_alone_are_removed(tmp_path: Path) -> None:
    home = tmp_path / "new" / "project" / ".recover"
    with project_lock(home, "x"):
        assert home.is_dir()
    assert list(tmp_path.iterdir()) == []
    with project_lock(home, "x"):
        (home / "name").touch()
    assert (home / "lock").exists()
    (existing := tmp_path / ".recover").mkdir()
    with project_lock(existing, "x"):
        pass
    assert existing.is_dir()


def test_a_folder_that_cannot_be_written_to_is_a_one_sentence_error() -> None:
    with pytest.raises(RecoverError, match="Cannot write to /dev/null"), project_lock(Path("/dev/null/p"), "x"):
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(lock.time, "monotonic", lambda: now[0])
    return now


def shown(project: Project) -> str:
    holder = running_command(project)
    return _progress_text(holder.progress or {})


def test_others_see_the_steps_of_a_training_and_not_replies_within_them(project: Project, clock: list[float]) -> None:
    with command_lock(project), published_progress(project):
        track("replies", 10)(1)
        assert shown(project) == "preparing: 1 of 10 replies"
        with recorded_run(project, "distill", None, {}, 0, steps=40):
            steps = track("steps", 40)
            clock[0] += 50
            steps(21)  # an interrupted run had taken 20
            assert shown(project) == "distilling: 21 of 40 steps, about 16 min left"
            clock[0] += 50
            track("replies", 64)(32)
            assert shown(project).startswith("distilling: 21 of 40 steps")
            steps(22)
            assert shown(project) == "distilling: 22 of 40 steps, about 15 min left"


def test_others_see_how_far_a_repair_is_before_its_first_move(project: Project, clock: list[float]) -> None:
    job = Job("repair", Settings()).save(project.home)
    with command_lock(project), saved_job(project, job), recorded_run(project, "eval", None, {}, 0):
        track("replies", 10)(1)
        assert shown(project) == "measuring: 1 of 10 replies"


def test_others_see_how_far_a_check_is(project: Project, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    def check_model(project: Project, job: Job, model: str) -> None:
        track("replies", 10)(1)
        raise RecoverError(shown(project))

    monkeypatch.setattr("pipelines.check.check_model", check_model)
    assert "preparing: 1 of 10 replies" in refusal("check", BASE, "--project", project.root)


def test_a_measurement_records_how_many_items_are_done(project: Project, clock: list[float]) -> None:
    with command_lock(project), published_progress(project), recorded_run(project, "eval", None, {}, 0) as run:
        items = track("replies", 2000)
        clock[0] += 60
        items(500)
        items(600)  # no sooner than five seconds after the last report
        assert shown(project) == "measuring: 500 of 2,000 replies, about 3 min left"
    project.tracker.flush()
    points = {point.name: point.value for point in project.reader.points(run, names=(DONE, TOTAL))}
    assert points == {DONE: 500, TOTAL: 2000}


def test_the_last_job_of_a_kind_says_how_long_its_stages_took_without_pauses(project: Project) -> None:
    def record(job: str, kind: RunKind, minutes: int, status: RunEnd = "done") -> None:
        run = project.tracker.start_run(project.id, kind, inputs=RunInputs(job=job))
        for step in range(2):
            project.tracker.step(run, step, {"rollout_seconds": 20.0 * minutes, "update_seconds": 10.0 * minutes})
        project.tracker.finish_run(run, status)
        with project.tracker._engine.begin() as connection:
            before_a_pause = {"started_at": datetime(2020, 1, 1, tzinfo=UTC)}
            connection.execute(update(tables.Run).where(tables.Run.id == run).values(**before_a_pause))

    assert last_time(project, "cycle") is None
    for job, minutes in (("first", 9), ("last", 5)):
        record(job, "midtrain", minutes)
        record(job, "eval", 2)
        record(job, "distill", 4)
        record(job, "eval", 2)
    record("interrupted", "midtrain", 30)
    record("interrupted", "distill", 30, "interrupted")
    text = "The last cycle here took 13 min: mid-training 5 min, measuring 4 min, distilling 4 min"
    assert last_time(project, "cycle") == text
    assert last_time(project, "midtrain") is None, "a cycle is no mid-training alone"
    record("alone", "midtrain", 7)
    assert last_time(project, "midtrain") == "The last mid-training here took 7 min: mid-training 7 min"
    assert answer(project, "runs", "--limit", "1")["runs"][0]["seconds"] == 420
