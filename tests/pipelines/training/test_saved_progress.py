"""The state of a run goes to the store now and then, and another machine begins with it."""

import json
from pathlib import Path

import pytest

from db.leases import LeaseLost
from pipelines.project.command_lock import command_lock
from pipelines.project.project import Project
from pipelines.training.saved_progress import (
    ProgressSender,
    delete_progress,
    fetch_progress,
    has_started,
    last_good_folder,
    lease_token,
    progress_folder,
)
from recovery.lab import BASE
from recovery.resume_state import NOTES, STATE
from tests.pipelines.project.machines import expire_leases, open_on


def save(project: Project, run: int, state: str = "saved") -> None:
    folder = progress_folder(project, run)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STATE).write_text(state)
    (folder / NOTES).write_text(json.dumps({"lease": lease_token(project)}))


def saved(project: Project, run: int) -> str:
    return (progress_folder(project, run) / STATE).read_text()


@pytest.mark.postgres
def test_another_machine_begins_with_the_last_state_that_was_sent(
    tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = (open_on(tmp_path / name, postgres_url, str(tmp_path / "store")) for name in ("here", "there"))
    run = here.tracker.start_run(here.id, "midtrain")
    with command_lock(here):
        save(here, run)
        sender = ProgressSender(here, run, minutes=30)
        sender.send(1, at_once=False)  # not yet due
        fetch_progress(there, run)
        assert not has_started(there, run)
        sender.send(1, at_once=True)
        fetch_progress(there, run)
        assert has_started(there, run)
        (tmp_path / "store").rename(tmp_path / "away")
        (tmp_path / "store").touch()
        sender.send(2, at_once=True)
        assert "Other machines could not go on from step 3: The store" in caplog.text
        (tmp_path / "store").unlink()
        (tmp_path / "away").rename(tmp_path / "store")
        expire_leases(postgres_url)
        with command_lock(there):
            with pytest.raises(LeaseLost):
                sender.send(3, at_once=True)
            delete_progress(there, run)
    assert not list((tmp_path / "store").glob("handbook/progress/*"))
    for project in (here, there):
        project.tracker.close()


@pytest.mark.postgres
def test_the_state_of_the_last_lease_counts_here_or_in_the_store(tmp_path: Path, postgres_url: str) -> None:
    here, there = (open_on(tmp_path / name, postgres_url, str(tmp_path / "store")) for name in ("here", "there"))
    run = here.tracker.start_run(here.id, "midtrain")
    with command_lock(here):
        save(here, run, "step 100")
        ProgressSender(here, run, minutes=30).send(100, at_once=True)
        save(here, run, "back at step 90")
    fetch_progress(here, run)
    assert saved(here, run) == "back at step 90"
    with command_lock(there):
        fetch_progress(there, run)
        assert saved(there, run) == "step 100"
        save(there, run, "step 5000")
        last_good_folder(here, run).mkdir()
        ProgressSender(there, run, minutes=30).send(5000, at_once=True)
    fetch_progress(here, run)
    assert saved(here, run) == "step 5000"
    assert [path.name for path in progress_folder(here, run).parent.iterdir()] == ["run-0001"]
    for project in (here, there):
        project.tracker.close()


def test_without_a_store_the_state_stays_in_its_folder(tmp_path: Path) -> None:
    project = Project.open(tmp_path, str(BASE))
    run = project.tracker.start_run(project.id, "midtrain")
    fetch_progress(project, run)
    save(project, run)
    ProgressSender(project, run, minutes=0).send(1, at_once=True)
    assert has_started(project, run)
    delete_progress(project, run)
    assert not has_started(project, run)
