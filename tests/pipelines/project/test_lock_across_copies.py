"""Two copies of a project's folder on one PostgreSQL record: one command at a time, and the other learns which."""

import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from pipelines.project.lock import command_lock, running_command
from pipelines.project.project import Project
from recovery.errors import RecoverError
from tests.pipelines.options import answer
from tests.pipelines.project.checkpoints import holding

pytestmark = pytest.mark.postgres


@pytest.fixture
def here(tmp_path: Path, postgres_url: str) -> Iterator[Project]:
    yield from project_in(tmp_path / "here", postgres_url)


@pytest.fixture
def there(here: Project, tmp_path: Path) -> Iterator[Project]:
    shutil.copytree(here.root, tmp_path / "there")
    yield from project_in(tmp_path / "there", here.database)


def project_in(folder: Path, url: str) -> Iterator[Project]:
    folder.mkdir(exist_ok=True)
    (folder / "recover.toml").write_text(f'db = "{url}"\n')
    project = Project.open(folder)
    _ = project.id
    yield project
    project.tracker.close()


def test_a_second_command_is_refused_until_the_first_is_killed(here: Project, there: Project) -> None:
    with holding("command_lock(Project.open(folder))", here.root) as holder:
        who = rf"`recover cycle --docs there` \(process {holder.pid} on {socket.gethostname()}\)\. Wait until it ends"
        with pytest.raises(RecoverError, match=who), command_lock(there):
            pass
        status = answer(there, "status")
        assert (status["running"], status["pid"]) == ("recover cycle --docs there", holder.pid)
        assert status["host"] == socket.gethostname()
        holder.kill()
        holder.wait()
    deadline = time.monotonic() + 10
    while running_command(there):  # until the server has noticed
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with command_lock(there):
        pass


def test_the_run_of_a_command_in_another_folder_can_be_stopped(here: Project, there: Project) -> None:
    assert there.id == here.id
    assert "nothing to cancel" in answer(there, "cancel")["error"]
    with command_lock(here):
        run = here.tracker.start_run(here.id, "distill")
        assert answer(there, "cancel") == {"run": run, "cancelling": True}
        assert here.reader.cancel_requested(run)


def test_projects_of_one_record_do_not_exclude_each_other(here: Project, tmp_path: Path) -> None:
    for other in project_in(tmp_path / "other", here.database):
        with command_lock(here), command_lock(other):
            holder = running_command(other)
            assert holder.pid == os.getpid()
        assert running_command(here) is running_command(other) is None


def test_a_command_whose_server_ends_the_connection_goes_on(here: Project, there: Project) -> None:
    with command_lock(here):
        with there.engine.connect() as connection:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            connection.execute(text(f"{others} AND datname = current_database()"))
        assert here.reader.runs(here.id) == []
