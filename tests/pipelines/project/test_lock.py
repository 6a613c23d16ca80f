import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.project.running import lock_holder, project_lock, store_job
from recovery.errors import RecoverError

HOLDER = """
import sys, time
from pathlib import Path
from pipelines.project.running import project_lock
with project_lock(Path(sys.argv[1]), "recover cycle --docs there"):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_command_learns_who_holds_the_lock_and_a_killed_process_releases_it(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
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


def test_the_holder_is_known_while_it_holds_the_lock(tmp_path: Path) -> None:
    assert lock_holder(tmp_path) is None
    with project_lock(tmp_path, "recover cycle"):
        store_job(tmp_path, "abc")
        holder = lock_holder(tmp_path)
        assert holder is not None
        assert (holder.command, holder.job) == ("recover cycle", "abc")
    assert lock_holder(tmp_path) is None


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
    with (
        pytest.raises(RecoverError, match="Cannot write to /dev/null"),
        project_lock(Path("/dev/null/p"), "x"),
    ):
        pass
