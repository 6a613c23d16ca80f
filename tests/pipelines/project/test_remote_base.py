"""A base in an object store, and an export to one."""

import uuid
from pathlib import Path

import pytest

from pipelines.project.project import Project
from pipelines.storage import RemoteFolder
from recovery.errors import RecoverError
from recovery.models.students import load_student
from tests.models import save_tiny
from tests.pipelines.options import recover


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteFolder:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("RECOVER_BASE", raising=False)
    remote = RemoteFolder(f"memory://{uuid.uuid4().hex}/tiny")
    remote.send(save_tiny(tmp_path / "model"))
    return remote


def test_the_base_is_fetched_once_and_stays_the_base(remote: RemoteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    created = Project.open(None, remote.address)
    _ = created.id
    folder = Path(created.base)
    assert folder.parent == Path.cwd() / ".recover" / "bases"
    assert folder.name.startswith("tiny-")
    assert load_student(created.base).parameters > 0
    monkeypatch.setattr(RemoteFolder, "fetch", lambda *_: pytest.fail("it is here"))
    assert Project.open(None, remote.address + "/").base == str(folder)
    monkeypatch.setattr(RemoteFolder, "version", lambda *_: pytest.fail("the record knows it"))
    Path("recover.toml").write_text(f'base = "{remote.address}"')
    assert Project.open(None).base == str(folder)


def test_another_version_than_the_recorded_one_is_refused_before_it_is_fetched(
    remote: RemoteFolder, tmp_path: Path
) -> None:
    project = Project.open(None, remote.address)
    _ = project.id
    remote.send(save_tiny(tmp_path / "other", seed=1))
    with pytest.raises(RecoverError, match=r"This project works from .*/tiny-.*, start another project"):
        Project.open(None, remote.address)
    assert len(list((project.home / "bases").iterdir())) == 1


def test_a_refused_command_leaves_nothing_behind(remote: RemoteFolder) -> None:
    refused = recover("cycle", "--docs", "nowhere", "--base", remote.address)
    assert refused.exit_code == 1
    missing = recover("init", "--base", "memory://no/such/model")
    assert "Error: There is no folder memory://no/such/model." in missing.stderr
    assert list(Path.cwd().iterdir()) == []


def test_an_export_arrives_in_the_store_and_can_be_a_base(remote: RemoteFolder) -> None:
    assert recover("init", "--base", remote.address).exit_code == 0
    address = remote.address + "-exported"
    exported = recover("export", "base", "--to", address)
    assert exported.exit_code == 0, exported.stderr
    assert exported.stdout.startswith(f"base is in {address} (full weights)")
    again = recover("export", "base", "--to", address)
    assert f"The folder {address} is not empty. Name another one with --to." in again.stderr
    assert list(Path(".recover").rglob("export-*")) == []
    other = Project.open(Path("other"), address)
    assert load_student(other.base).parameters > 0
