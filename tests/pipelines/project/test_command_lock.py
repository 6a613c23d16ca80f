"""A project on several machines: one command at a time, what the others see of it, and what they take over."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from db.errors import RecordError
from db.leases import LeaseHeld, LeaseLost
from db.run_inputs import RunInputs
from pipelines.cli import main
from pipelines.jobs.job import Job, unfinished_jobs
from pipelines.jobs.saved_jobs import end_job, save_job
from pipelines.project.command_lock import command_lock, leases, running_command, show_job, show_progress
from pipelines.project.project import Project
from pipelines.settings.schema import Settings
from recovery.errors import RecoverError
from tests.pipelines.project.checkpoints import record_checkpoint
from tests.pipelines.project.machines import expire_leases, open_on

pytestmark = pytest.mark.postgres


@pytest.fixture
def here(tmp_path: Path, postgres_url: str) -> Iterator[Project]:
    project = open_on(tmp_path / "here", postgres_url, str(tmp_path / "store"))
    yield project
    project.tracker.close()


@pytest.fixture
def there(tmp_path: Path, postgres_url: str) -> Iterator[Project]:
    project = open_on(tmp_path / "there", postgres_url, str(tmp_path / "store"))
    yield project
    project.tracker.close()


def recover(project: Project, *arguments: str) -> Any:
    ran = CliRunner().invoke(main, [*arguments, "--json", "--project", str(project.root)])
    return json.loads(ran.stdout)


def test_a_project_is_held_on_one_machine_at_a_time(here: Project, there: Project) -> None:
    with command_lock(here):
        assert here.tracker.lease is None, "the project is not created yet"
        _ = here.id
        assert here.tracker.lease is not None
        with pytest.raises(LeaseHeld, match=r"`recover.*\(process"), command_lock(there):
            pass
        assert there.tracker.lease is None
    with command_lock(there):
        assert there.id == here.id
    assert leases(here) == []


def test_the_others_see_the_running_command(here: Project, there: Project) -> None:
    _ = here.id
    job = Job("distill", Settings())
    with command_lock(here):
        save_job(here, job)
        show_job(here, job.id)
        show_progress(here, {"stage": "distilling", "units": "steps", "done": 3, "total": 40, "seconds_left": 600})
        here.tracker.check_lease()
        holder = running_command(there)
        assert holder is not None
        assert (holder.job, (holder.progress or {})["done"]) == (job.id, 3)
        status = recover(there, "status")
        (lease,) = status["leases"]
        assert (lease["project"], lease["alive"], lease["pid"]) == ("handbook", True, holder.pid)
        assert (status["running"], status["interrupted"], status["name"]) == (holder.command, [], "handbook")
        assert status["progress"]["total"] == 40
        run = here.tracker.start_run(here.id, "distill", inputs=RunInputs(job=job.id))
        assert recover(there, "cancel") == {"run": run, "cancelling": True}
        assert here.tracker.cancel_requested(run)


def test_a_lost_command_is_shown_with_its_machine_and_taken_over(
    here: Project, there: Project, postgres_url: str
) -> None:
    _ = here.id
    job = Job("cycle", Settings())
    with command_lock(here):
        save_job(here, job)
        show_job(here, job.id)
        here.tracker.check_lease()
        expire_leases(postgres_url)
        status = recover(there, "status")
        assert ([lease["alive"] for lease in status["leases"]], status["running"]) == ([False], None)
        assert (status["interrupted"], status["next"]) == (["cycle"], "recover resume")
        text = CliRunner().invoke(main, ["status", "--project", str(there.root)]).stdout
        assert "\nlost: `recover" in text
        with command_lock(there):
            assert unfinished_jobs(there.home) == [job]
            end_job(there, job)
        with pytest.raises(LeaseLost, match="has taken over this project"):
            here.tracker.check_lease()
        with pytest.raises(LeaseLost):
            show_progress(here, {"stage": "distilling"})
    assert unfinished_jobs(here.home) == [job], "its own file stays until it looks into the store"
    assert recover(here, "status")["interrupted"] == []
    assert unfinished_jobs(here.home) == []


def test_a_command_that_was_killed_in_this_folder_is_known_at_once_to_have_ended(here: Project) -> None:
    _ = here.id
    with command_lock(here):
        left_behind = here.tracker.lease
        assert left_behind is not None
    with here.tracker._engine.begin() as connection:  # as after a kill
        left_behind.renew(connection)
    assert [lease.alive for lease in leases(here)] == [False]
    with command_lock(here):
        pass


def test_inputs_and_checkpoints_come_from_the_store(here: Project, there: Project, tmp_path: Path) -> None:
    cycle, _ = here.tracker.open_cycle(here.id)
    checkpoint = record_checkpoint(here, cycle, 100)
    prompts = here.home / "cache" / "prompts-1.jsonl"
    for file in (here.home / "documents" / "abc.jsonl", here.home / "questions" / "12" / "q.jsonl", prompts):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
    job = Job("distill", Settings(), student=checkpoint, prompts=prompts)
    with command_lock(here):
        save_job(here, job)
    here.root.rename(tmp_path / "lost")
    with command_lock(there):
        assert unfinished_jobs(there.home)[0].prompts == there.home / "cache" / "prompts-1.jsonl"
        assert (there.home / "documents" / "abc.jsonl").read_text() == "abc.jsonl"
        assert (there.home / "questions" / "12" / "q.jsonl").read_text() == "q.jsonl"
        found = there.resolve("cycle:1")
    assert Path(found.path) == there.home / "checkpoints" / "run-0001"
    (there.home / "checkpoints" / "run-0001" / "model.safetensors").write_bytes(b"other")
    assert there.resolve("cycle:1") == found, "the recorded weights replace others"
    assert recover(there, "promote", "cycle:1", "--reject")["decision"] == "rejected"
    assert recover(there, "cancel")["given_up"] == "distill"
    assert len(recover(there, "gc", "--rejected")["freed"]) == 1
    assert list((tmp_path / "store" / "handbook" / "checkpoints").iterdir()) == []
    with pytest.raises(RecoverError, match="were deleted"):
        there.resolve("cycle:1")


def test_without_a_store_the_job_stays_where_it_is(tmp_path: Path, postgres_url: str) -> None:
    here, there = (open_on(tmp_path / name, postgres_url) for name in ("here", "there"))
    _ = here.id
    job = Job("cycle", Settings())
    with command_lock(here):
        save_job(here, job)
        show_job(here, job.id)
        here.tracker.check_lease()
        expire_leases(postgres_url)
        assert "is not here. Resume it on that machine" in recover(there, "resume")["error"]
    for project in (here, there):
        project.tracker.close()


def test_a_folder_belongs_to_the_project_that_its_file_names(here: Project, tmp_path: Path) -> None:
    _ = here.id
    assert Project.exists(here.root)
    (here.root / "recover.toml").write_text(f'name = "other"\ndb = "{here.database}"\n')
    with pytest.raises(RecoverError, match=r"has the project 'handbook', but its recover\.toml names 'other'"):
        Project.open(here.root)


def test_a_store_needs_a_record_that_other_machines_reach(tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text('store = "shared"\n')
    with pytest.raises(RecoverError, match="Name a PostgreSQL database"):
        _ = Project.open(tmp_path).store


def test_a_duration_that_is_none_is_refused(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    _ = here.id
    monkeypatch.setenv("RECOVER_LEASE_SECONDS", "soon")
    with pytest.raises(RecordError, match="RECOVER_LEASE_SECONDS"), command_lock(here):
        pass
