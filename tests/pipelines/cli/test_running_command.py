import subprocess
from collections.abc import Iterator

import pytest

from db.tables import RunInputs, RunKind
from pipelines.cli.train import warn_of_interrupted
from pipelines.job import Job, unfinished_jobs
from pipelines.project.lock import project_lock, update_holder
from pipelines.project.project import Project
from pipelines.settings.schema import Settings
from tests.pipelines.options import answer, recover
from tests.pipelines.project.checkpoints import record_checkpoint

COMMAND = "recover cycle --docs there"


@pytest.fixture
def job(project: Project) -> Iterator[Job]:
    job = Job("cycle", Settings()).save(project.home)
    with project_lock(project.home, COMMAND):
        update_holder(project.home, job=job.id)
        yield job


def start_run(project: Project, job: Job, kind: RunKind) -> int:
    return project.tracker.start_run(project.id, kind, inputs=RunInputs(job=job.id))


def test_a_running_command_is_not_interrupted(project: Project, job: Job) -> None:
    status = answer(project, "status")
    assert (status["running"], status["interrupted"]) == (COMMAND, [])
    assert status["next"] == "wait until it ends, or stop it with Ctrl-C"
    training = start_run(project, job, "midtrain")
    assert answer(project, "status")["next"] == "wait until it ends, or stop it with recover cancel"
    project.tracker.finish_run(training, "done")
    start_run(project, job, "eval")
    assert answer(project, "status")["next"] == "wait until it ends, or stop it with Ctrl-C", "while it measures"
    lines = recover("status", "--project", project.root).stdout
    assert f"running: `{COMMAND}` (process" in lines
    Job("distill", Settings()).save(project.home)
    assert answer(project, "status")["interrupted"] == ["distill"]


def test_a_command_that_ended_without_finishing_its_job_was_interrupted(project: Project) -> None:
    job = Job("midtrain", Settings()).save(project.home)
    with project_lock(project.home, COMMAND):
        update_holder(project.home, job=job.id)
        left_behind = (project.home / "lock.json").read_text()
    (project.home / "lock.json").write_text(left_behind)  # as after a kill
    status = answer(project, "status")
    resume = "recover resume"
    assert (status["running"], status["interrupted"], status["next"]) == (None, ["midtrain"], resume)


def test_a_training_command_says_which_one_was_interrupted(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    interrupted, job = (Job(command, Settings()).save(project.home) for command in ("cycle", "distill"))
    warn_of_interrupted(project, job)
    assert [message for message in caplog.messages if "`recover cycle` was interrupted" in message]
    interrupted.delete(project.home)
    caplog.clear()
    warn_of_interrupted(project, job)
    assert caplog.messages == []


def test_cancel_stops_the_run_of_the_running_command(project: Project, job: Job) -> None:
    run = start_run(project, job, "midtrain")
    assert answer(project, "cancel") == {"run": run, "cancelling": True}
    assert project.reader.cancel_requested(run)


def test_cancel_stops_the_move_of_a_repair_and_discards_an_interrupted_one(project: Project) -> None:
    job = Job("repair", Settings()).save(project.home)
    with project_lock(project.home, COMMAND):
        update_holder(project.home, job=job.id)
        run = project.tracker.start_run(project.id, "distill", inputs=RunInputs(job=f"{job.id}-answers"))
        assert answer(project, "cancel") == {"run": run, "cancelling": True}
    project.tracker.finish_run(run, "interrupted")
    assert answer(project, "cancel", str(run))["given_up"] == "repair"
    assert unfinished_jobs(project.home) == []
    assert not project.reader.run(run).resumable


def test_cancel_leaves_the_run_of_a_killed_process(project: Project, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killed:
        killed.setattr("os.getpid", lambda: 1)
        run = start_run(project, job, "midtrain")
    assert "`recover cancel` while it trains" in answer(project, "cancel")["error"]
    assert not project.reader.cancel_requested(run)


def test_cancel_says_how_to_stop_an_evaluation_and_what_is_between_two_runs(project: Project, job: Job) -> None:
    assert "`recover cancel` while it trains" in answer(project, "cancel")["error"]
    run = start_run(project, job, "eval")
    assert f"Run {run} is an evaluation" in answer(project, "cancel")["error"]
    assert unfinished_jobs(project.home) == [job]


def test_a_run_whose_process_was_killed_is_over_at_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("midtrain", Settings()).save(project.home)
    with subprocess.Popen(["sleep", "60"]) as process, monkeypatch.context() as of_process:
        of_process.setattr("os.getpid", lambda: process.pid)
        run = start_run(project, job, "midtrain")
        assert answer(project, "runs")["runs"][0]["status"] == "running"
        process.kill()
    assert answer(project, "runs")["runs"][0]["status"] == "stale"
    assert answer(project, "cancel", run) == {"run": run, "cancelling": False, "given_up": "midtrain"}
    assert answer(project, "runs")["runs"][0]["status"] == "failed"


def test_a_run_in_another_container_that_holds_the_project_goes_on(
    project: Project, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start_run(project, job, "midtrain")
    monkeypatch.setattr("psutil.pid_exists", lambda pid: False)
    assert answer(project, "runs")["runs"][0]["status"] == "running"
    assert answer(project, "cancel", run) == {"run": run, "cancelling": True}


def test_cancel_marks_a_killed_evaluation_as_ended(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    run = project.tracker.start_run(project.id, "eval")  # of `recover eval`, which has no job
    monkeypatch.setattr("db.queries.STALE_SECONDS", 0.001)  # its last heartbeat is older than that
    assert answer(project, "cancel", str(run)) == {"run": run, "cancelling": False}
    ended = project.reader.run(run)
    assert (ended.status, ended.resumable) == ("failed", False)


def test_without_a_running_command_cancel_discards_the_interrupted_one(project: Project) -> None:
    job = Job("midtrain", Settings()).save(project.home)
    start_run(project, job, "midtrain")  # its process was killed, and the record does not know it yet
    assert answer(project, "cancel") == {"run": None, "cancelling": False, "given_up": "midtrain"}


def test_a_cycle_without_a_checkpoint_is_discarded_with_its_command(project: Project) -> None:
    job = Job("cycle", Settings()).save(project.home)
    cycle, _ = project.tracker.open_cycle(project.id)
    run = project.tracker.start_run(project.id, "midtrain", cycle, inputs=RunInputs(job=job.id))
    project.tracker.finish_run(run, "interrupted")
    assert answer(project, "status")["cycles"][0]["outcome"] == "open"
    answer(project, "cancel")
    assert answer(project, "status")["cycles"][0]["outcome"] == "discarded"


def test_cycles_without_a_run_are_deleted_with_the_last_interrupted_command(project: Project) -> None:
    """Both were interrupted while the base wrote the mix."""
    for _ in range(2):
        Job("cycle", Settings()).save(project.home)
        project.tracker.open_cycle(project.id)
    for left in (2, 0):
        answer(project, "cancel")
        assert len(answer(project, "status")["cycles"]) == left


def test_an_attempt_that_is_discarded_before_its_verdict_leaves_its_cycle_rejected(project: Project) -> None:
    cycle, _ = project.tracker.open_cycle(project.id)
    start = project.tracker.checkpoint(project.id, "midtrained", "m", cycle=cycle)
    first = record_checkpoint(project, cycle, 4, parent=start)
    project.tracker.promote(project.id, cycle, first, "rejected", "gate", "too low", {"passed": False})
    job = Job("distill", Settings()).save(project.home)
    runs = [
        project.tracker.start_run(project.id, kind, cycle, inputs=RunInputs(job=job.id)) for kind in ("distill", "eval")
    ]
    second = project.tracker.checkpoint(project.id, "recovered", "r", parent=start, run=runs[0], cycle=cycle)
    project.tracker.finish_run(runs[0], "done")
    project.tracker.reopen_cycle(cycle)
    assert answer(project, "cancel")["given_up"] == "distill"
    (row,) = answer(project, "status")["cycles"]
    assert (row["status"], row["outcome"]) == ("rejected", "rejected")
    last = project.reader.promotions(project.id)[0]
    assert (last.checkpoint_id, last.decision, last.why) == (second, "rejected", "discarded before its verdict")


def test_a_first_attempt_that_is_discarded_before_its_verdict_leaves_its_cycle_open(project: Project) -> None:
    job = Job("cycle", Settings()).save(project.home)
    cycle, _ = project.tracker.open_cycle(project.id)
    run = project.tracker.start_run(project.id, "distill", cycle, inputs=RunInputs(job=job.id))
    for role in ("midtrained", "recovered"):
        project.tracker.checkpoint(project.id, role, role, run=run, cycle=cycle)
    project.tracker.finish_run(run, "done")
    answer(project, "cancel")
    status = answer(project, "status")
    assert (status["cycles"][0]["outcome"], status["next"]) == ("open", "recover distill --teacher base")
