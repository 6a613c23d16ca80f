import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.project.locations import Base, resolve_base
from pipelines.project.project import Project, weights_hash
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.adapters import Adapter
from recovery.models.students import load_student, save_student
from tests.pipelines.options import recover
from tests.pipelines.project.checkpoints import promoted_cycle, record_cycle


def test_a_project_whose_folder_was_moved_is_the_same_project_with_a_base_inside(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    (before / "model").mkdir(parents=True)
    (before / "recover.toml").write_text('base = "model"')
    project = Project.open(before)
    clean, promoted = project.clean.id, record_cycle(project, "promoted")
    project.tracker.close()
    before.rename(after)
    moved = Project.open(after)
    assert (moved.name, moved.current.id) == (project.name, promoted)
    assert Path(moved.current.path).is_dir()
    for checkpoint in (moved.clean, Project.open(after, str(after / "model")).clean):
        assert (checkpoint.id, checkpoint.path) == (clean, str(after / "model"))


def test_a_project_is_read_while_another_process_writes_to_its_record(tmp_path: Path) -> None:
    project = Project.open(tmp_path)
    project.tracker.close()
    assert project.id
    with sqlite3.connect(project.home / "recover.db", isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")
        started_at = time.monotonic()
        assert Project.open(tmp_path).current.reference == "base"
        assert time.monotonic() - started_at < 10, "it waited for the other"
        writer.execute("ROLLBACK")


CREATE = """
import sys
from pathlib import Path
from pipelines.project.project import Project
project = Project.open(Path(sys.argv[1]))
print("open", flush=True)
input()
print(project.id)
"""


def test_two_first_commands_at_a_time_create_one_project(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CREATE, tmp_path]
    commands = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in commands:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
    for process in commands:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    ids = {int(process.communicate()[0]) for process in commands}
    project = Project.open(tmp_path)
    assert ({row.id for row in project.reader.projects()}, ids) == ({project.id}, {project.id})
    assert not (tmp_path / ".recover" / "name.lock").exists()


def test_a_first_command_with_another_base_is_refused_where_one_was_created_meanwhile(tmp_path: Path) -> None:
    second = Project.open(tmp_path, "org/another")
    assert Project.open(tmp_path).clean.path == str(BASE)
    with pytest.raises(RecoverError, match=f"just created this project from {BASE}"):
        _ = second.id


@pytest.mark.parametrize("command", [("eval",), ("compare", "base")])
def test_a_model_that_does_not_exist_creates_no_project_and_measures_nothing(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    first, *rest = command
    refused = recover(first, "--project", tmp_path, *rest, "org/absent")
    assert (refused.exit_code, "No model could be loaded from 'org/absent'" in refused.stderr) == (1, True)
    assert "Measuring" not in refused.stderr
    assert not list(tmp_path.iterdir())


def test_the_built_in_base_is_located_where_the_tool_is_installed_now(tmp_path: Path) -> None:
    before = Project(tmp_path, "/gone/site-packages/recovery/lab/base", base_is_default=True)
    clean = before.clean.id
    before.tracker.close()
    now = Project.open(tmp_path)
    assert (now.base, now.base_is_default) == (str(BASE), True)
    for checkpoint in (now.clean, now.current, now.resolve("base"), now.resolve(str(BASE))):
        assert (checkpoint.id, checkpoint.path) == (clean, str(BASE))


def test_a_checkpoint_whose_weights_changed_is_rejected(project: Project) -> None:
    record_cycle(project)
    folder = project.checkpoint_folder(1)
    assert project.resolve("cycle:1").path == str(folder)
    (folder / "model.safetensors").write_bytes(b"!")
    with pytest.raises(RecoverError, match="another hash"):
        project.resolve("cycle:1")


def test_a_copied_project_reads_no_weights_of_the_original(tmp_path: Path) -> None:
    original = Project.open(tmp_path / "original")
    record_cycle(original)
    original.tracker.close()
    copy = Project.open(shutil.copytree(tmp_path / "original", tmp_path / "copy"))
    shutil.move(copy.checkpoint_folder(1), tmp_path / "larger-disk")
    copy.checkpoint_folder(1).symlink_to(tmp_path / "larger-disk")
    assert copy.resolve("cycle:1").path == str(copy.checkpoint_folder(1))
    copy.checkpoint_folder(1).unlink()
    with pytest.raises(RecoverError, match="are gone from"):
        copy.resolve("cycle:1")


def test_references_name_checkpoints(project: Project) -> None:
    recovered = promoted_cycle(project).id
    midtrained, run = project.reader.checkpoint(recovered).parent_id, project.reader.runs(project.id)[0].id
    names = ("base", "current", "cycle:1", "cycle:1/recovered", f"run:{run}")
    found = [project.find(name).id for name in names]
    assert found == [project.clean.id, recovered, recovered, recovered, recovered]
    assert project.find("cycle:1/midtrained").id == midtrained
    for missing in ("cycle:2", f"run:{run + 1}"):
        with pytest.raises(RecoverError, match=f"There is no {missing} in this project yet"):
            project.find(missing)


def test_a_base_whose_weights_changed_or_are_gone_is_rejected(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"clean")
    project = Project.open(tmp_path / "project", str(model))
    assert project.clean.hash == weights_hash(model)
    before = project.weights_id(project.clean)
    (model / "chat_template.jinja").write_text("{{ messages }}")
    assert Project.open(tmp_path / "project").base_weights_id != before  # it is measured again, and not refused
    (model / "model.safetensors").write_bytes(b"other")
    reopened = Project.open(tmp_path / "project")
    for access in (lambda: reopened.resolve("base"), lambda: reopened.weights_id(reopened.current)):
        with pytest.raises(RecoverError, match="not those that this project was created with"):
            access()
    model.rename(tmp_path / "elsewhere")
    with pytest.raises(RecoverError, match="model, which has the clean model of this project, is gone"):
        Project.open(tmp_path / "project").resolve("base")


def test_the_flag_comes_before_the_environment_and_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECOVER_BASE", raising=False)
    assert resolve_base(tmp_path) == Base(str(BASE), True)
    (tmp_path / "model").mkdir()
    (tmp_path / "recover.toml").write_text('base = "model"')
    assert resolve_base(tmp_path) == Base(str(tmp_path / "model"), False)  # relative to the file
    monkeypatch.setenv("RECOVER_BASE", "org/environment")
    assert resolve_base(tmp_path) == Base("org/environment", False)
    assert resolve_base(tmp_path, "org/flag") == Base("org/flag", False)


def test_a_base_that_is_no_text_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text("base = 7")
    with pytest.raises(RecoverError, match="It must be a folder or a hub id"):
        resolve_base(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[distil]", "There is no setting distil."),
        ("distill = [", "is not valid TOML"),
    ],
)
def test_commands_that_train_nothing_refuse_a_broken_settings_file(content: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "recover.toml").write_text(content)
    for command in (["status"], ["eval", "base"]):
        refused = recover(*command, "--project", tmp_path)
        assert (refused.exit_code, sentence in refused.stderr) == (1, True), refused.stderr
    (tmp_path / "recover.toml").write_text("[midtrain]\nmix = 'documents'")
    _ = Project.open(tmp_path).id
    (tmp_path / "recover.toml").write_text(content)
    assert sentence in recover("status", "--project", tmp_path).stderr


def test_a_record_without_the_project_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECOVER_DB", str(tmp_path / "another.db"))
    assert recover("init").exit_code == 0
    weights = tmp_path / ".recover" / "checkpoints" / "run-0001"
    weights.mkdir(parents=True)
    monkeypatch.delenv("RECOVER_DB")
    ran = recover("gc", "--json")
    assert (ran.exit_code, "RECOVER_DB" in ran.stderr, weights.is_dir()) == (1, True, True)


def test_a_project_whose_name_is_gone_is_not_created_anew(tmp_path: Path) -> None:
    """`recover gc` of the new one would delete all checkpoints."""
    project = Project.open(tmp_path)
    record_cycle(project)
    project.tracker.close()
    project.name_file.unlink()
    refused = recover("init", "--project", tmp_path)
    assert refused.exit_code == 1
    assert f"write the name that it has in {project.database_label} ({project.name}) into that file" in refused.stderr
    project.name_file.write_text(project.name)
    assert Project.open(tmp_path).id == project.id


def test_init_hides_no_record_behind_another(tmp_path: Path) -> None:
    _ = Project.open(tmp_path).id
    refused = recover("init", "--project", tmp_path, "--db", "another.db")
    assert (refused.exit_code, "has a record already" in refused.stderr) == (1, True)
    assert not (tmp_path / "recover.toml").exists()


def test_an_adapter_on_a_base_whose_weights_changed_is_rejected(tmp_path: Path) -> None:
    model, adapter = tmp_path / "model", tmp_path / "project" / ".recover" / "checkpoints" / "run-0001"
    for folder in (model, adapter):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights")
    project = Project(tmp_path / "project", str(model), base_is_default=False)
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(model)}))
    weights = weights_hash(adapter)
    id = project.tracker.checkpoint(project.id, "recovered", adapter, "adapter", parent=project.clean.id, hash=weights)
    checkpoint = project.reader.checkpoint(id)
    assert project.verify(checkpoint).path == str(adapter)
    (model / "model.safetensors").write_bytes(b"other")
    with pytest.raises(RecoverError, match="not those that this project was created with"):
        Project.open(tmp_path / "project").verify(checkpoint)


@pytest.mark.parametrize("path", ["record.db", "sqlite:///record.db"])
def test_a_database_path_in_settings_is_relative_to_the_file(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recover.toml").write_text(f"db = '{path}'")
    assert recover("init").exit_code == 0
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    ran = recover("status", "--json")
    assert json.loads(ran.stdout)["project"] == str(tmp_path)
    assert (tmp_path / "record.db").is_file()
    assert list((tmp_path / "deeper").iterdir()) == []


@pytest.mark.parametrize("option", [["--base", "./no-such-model"], ["--db", "postgresql://127.0.0.1:1/none"]])
def test_a_failed_init_leaves_nothing(option: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "new" / "p"
    assert recover("init", "--project", "new/p", *option).exit_code == 1
    assert list(tmp_path.iterdir()) == []
    (folder / ".recover").mkdir(parents=True)
    assert recover("init", "--project", "new/p", *option).exit_code == 1
    assert [path.name for path in folder.rglob("*")] == [".recover"]
    assert recover("init", "--project", folder).exit_code == 0
    assert (folder / "recover.toml").read_text().startswith("# The defaults of other settings")


def test_the_weights_of_a_model_from_outside_are_read_again_only_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shutil.copytree(BASE, tmp_path / "model")
    project, read = Project.open(tmp_path / "project"), list[Path]()

    def reading(folder: Path) -> str:
        read.append(folder)
        return weights_hash(folder)

    monkeypatch.setattr("pipelines.project.project.weights_hash", reading)
    teacher = project.resolve(str(model))
    before = project.weights_id(teacher)
    assert Project.open(tmp_path / "project").model_id(str(model)) == before
    assert read.count(model) == 1
    file = model / "model.safetensors"
    times = file.stat()
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert project.weights_id(teacher) != before, "neither its size nor the time of its content differs"


def test_an_adapter_from_outside_is_another_model_once_its_base_was_changed(tmp_path: Path) -> None:
    below = shutil.copytree(BASE, tmp_path / "below")
    save_student(load_student(str(below), adapter=Adapter(rank=2)), tmp_path / "adapter", {})
    project = Project.open(tmp_path / "project")
    adapter = project.resolve(str(tmp_path / "adapter"))
    before = project.weights_id(adapter)
    assert project.weights_id(adapter) == before
    (below / "model.safetensors").write_bytes((below / "model.safetensors").read_bytes()[:-1] + b"!")
    assert project.weights_id(adapter) != before
