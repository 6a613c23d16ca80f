import shutil
import uuid
from pathlib import Path

import pytest

from db import name_of_base
from pipelines.project.export import model_card
from pipelines.project.locations import describe_base
from pipelines.project.project import Project
from pipelines.storage import RemoteFolder
from recovery.errors import RecoverError
from recovery.models.students import load_student
from tests.gguf_files import save_tiny_gguf
from tests.models import save_tiny
from tests.pipelines.options import data_of, recover


@pytest.fixture(autouse=True)
def empty_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECOVER_BASE", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return save_tiny_gguf(tmp_path / "tiny.gguf")


@pytest.fixture
def documents(tmp_path: Path) -> str:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.md").write_text("The harbour of Vell opens at six.")
    return str(tmp_path / "docs")


def working_files() -> list[str]:
    return sorted(path.name for path in Path.cwd().iterdir())


def test_a_gguf_model_is_made_once_and_stays_the_base_whatever_becomes_of_the_file(
    gguf: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = Project.open(None, "../tiny.gguf")  # relative to the working directory
    _ = created.id
    folder = Path(created.base)
    assert folder.parent == Path.cwd() / ".recover" / "gguf"
    assert load_student(created.base).parameters == 26_912
    assert any("tiny.gguf to bfloat16 (96.2% in F32, 3.8% in Q8_0)" in message for message in caplog.messages)
    made = len(caplog.messages)
    Path("below").mkdir()
    monkeypatch.chdir("below")
    assert Project.open(None, "../../tiny.gguf").base == str(folder)
    renamed = gguf.rename(gguf.with_name("renamed.gguf"))
    assert Project.open(None, str(renamed)).base == str(folder)
    renamed.unlink()
    assert Project.open(None).base == str(folder)
    assert Project.open(None, str(folder)).base == str(folder)
    assert len(caplog.messages) == made
    with pytest.raises(RecoverError, match=r"There is no file .*renamed\.gguf"):
        Project.open(None, str(renamed))


def test_another_file_than_the_recorded_one_is_refused_before_it_is_dequantised(gguf: Path) -> None:
    project = Project.open(None, str(gguf))
    _ = project.id
    other = save_tiny_gguf(gguf.with_name("other.gguf"), seed=1)
    with pytest.raises(RecoverError, match=r"This project works from tiny\.gguf, dequantised in .*other\.gguf, start"):
        Project.open(None, str(other))
    assert [path.name for path in (project.home / "gguf").iterdir()] == [Path(project.base).name]


def test_a_lost_model_is_made_again_from_the_file(gguf: Path) -> None:
    project = Project.open(None, str(gguf))
    weights = project.weights_id(project.clean)
    shutil.rmtree(project.base)
    assert Project.open(None, str(gguf)).base_weights_id == weights


def test_a_copied_project_uses_its_own_copy_of_the_model(gguf: Path) -> None:
    project = Project.open(Path("first"), str(gguf))
    _ = project.id
    project.tracker.close()
    shutil.copytree("first", "second")
    for copied in (Project.open(Path("second")), Project.open(Path("second"), str(gguf))):
        assert Path(copied.base).is_relative_to(Path("second").resolve())


def test_the_file_may_be_named_in_the_settings_file(gguf: Path) -> None:
    Path("recover.toml").write_text('base = "../tiny.gguf"')
    created = Project.open(None)
    _ = created.id
    gguf.unlink()
    assert Project.open(None).base == created.base


def test_a_dry_run_and_a_summary_of_documents_leave_nothing_behind(gguf: Path, documents: str) -> None:
    for command in (["cycle", "--dry-run", "--docs"], ["documents"]):
        assert data_of(recover(*command, documents, "--base", gguf, "--json"))["base"] == "tiny.gguf"
        assert working_files() == []


@pytest.mark.parametrize("project", [".", "new/folder"])
def test_a_refused_command_leaves_nothing_behind(gguf: Path, project: str) -> None:
    for command in (["cycle", "--docs", "nowhere"], ["eval", "run:7"], ["distill", "--student", gguf]):
        refused = recover(*command, "--base", gguf, "--project", project)
        assert refused.exit_code == 1
        assert refused.stderr.splitlines()[-1].startswith("Error: There is no") or "only be the base" in refused.stderr
        assert working_files() == []


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "There is no file broken.gguf."), (b"GGUF?", "is no complete GGUF file")]
)
def test_a_bad_or_missing_file_is_a_sentence(content: bytes | None, sentence: str, documents: str, gguf: Path) -> None:
    if content is not None:
        Path("broken.gguf").write_bytes(content)
    before = working_files()
    for command in (["cycle", "--docs", documents], ["init"], ["eval", "base"]):
        refused = recover(*command, "--base", "broken.gguf")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert sentence in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        assert working_files() == before


def test_the_base_is_shown_by_the_name_of_its_file(gguf: Path) -> None:
    assert "base     tiny.gguf, dequantised in " in recover("init", "--base", gguf).stdout
    assert "base     tiny.gguf, dequantised in " in recover("status").stdout
    project = Project.open(None)
    card = str(model_card(project, project.clean, "full"))
    assert "base_model: tiny.gguf\n" in card
    assert "clean model (tiny.gguf)" in card
    assert str(project.root) not in card
    for other in ("org/name", "/models/gguf/llama", "/models/llama-0123456789ab"):
        assert name_of_base(other) == describe_base(other) == other


@pytest.fixture
def remote(tmp_path: Path) -> RemoteFolder:
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


def test_another_version_than_the_recorded_one_is_not_fetched(remote: RemoteFolder, tmp_path: Path) -> None:
    project = Project.open(None, remote.address)
    _ = project.id
    remote.send(save_tiny(tmp_path / "other", seed=1))
    with pytest.raises(RecoverError, match=r"This project works from .*/tiny-.*, start another project"):
        Project.open(None, remote.address)
    assert len(list((project.home / "bases").iterdir())) == 1


def test_a_refused_command_fetches_nothing(remote: RemoteFolder) -> None:
    assert recover("cycle", "--docs", "nowhere", "--base", remote.address).exit_code == 1
    missing = recover("init", "--base", "memory://no/such/model")
    assert "Error: There is no folder memory://no/such/model." in missing.stderr
    assert working_files() == []


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
