"""Projects that are moved, and weights that changed, on a real record without a model."""

import sqlite3
import time
from pathlib import Path

import pytest

from pipelines.project.checkpoints import weights_hash
from pipelines.project.project import Project
from recovery.errors import RecoverError
from recovery.lab import BASE
from tests.pipelines.project.checkpoints import record_cycle


def test_a_project_whose_folder_was_moved_is_the_same_project(tmp_path: Path) -> None:
    before = tmp_path / "before"
    project = Project.open(before)
    promoted = record_cycle(project, "promoted")
    project.tracker.close()
    before.rename(tmp_path / "after")
    moved = Project.open(tmp_path / "after")
    assert moved.name == project.name
    assert moved.current.id == promoted
    assert Path(moved.current.path).is_dir()


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


def test_the_built_in_base_is_located_where_the_tool_is_installed_now(tmp_path: Path) -> None:
    before = Project(tmp_path, "/gone/site-packages/recovery/lab/base", base_is_default=True)
    clean = before.clean.id
    before.tracker.close()
    now = Project.open(tmp_path)
    assert (now.base, now.base_is_default) == (str(BASE), True)
    for checkpoint in (now.clean, now.current, now.resolve("base"), now.resolve(str(BASE))):
        assert (checkpoint.id, checkpoint.path) == (clean, str(BASE))


def test_a_base_inside_the_project_folder_moves_with_it(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    (before / "model").mkdir(parents=True)
    (before / "recover.toml").write_text('base = "model"')
    project = Project.open(before)
    clean = project.clean.id
    project.tracker.close()
    before.rename(after)
    for checkpoint in (Project.open(after).clean, Project.open(after, str(after / "model")).clean):
        assert (checkpoint.id, checkpoint.path) == (clean, str(after / "model"))


def test_a_checkpoint_whose_weights_changed_is_rejected(project: Project) -> None:
    record_cycle(project)
    folder = project.checkpoint_folder(1)
    assert project.resolve("cycle:1").path == str(folder)
    (folder / "model.safetensors").write_bytes(b"!")
    with pytest.raises(RecoverError, match="another hash"):
        project.resolve("cycle:1")


def test_a_base_whose_weights_changed_is_rejected(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"clean")
    project = Project.open(tmp_path / "project", str(model))
    assert project.weights_id(project.clean) == weights_hash(model)
    (model / "model.safetensors").write_bytes(b"other")
    reopened = Project.open(tmp_path / "project")
    for access in (lambda: reopened.resolve("base"), lambda: reopened.weights_id(reopened.current)):
        with pytest.raises(RecoverError, match="not those that this project was created with"):
            access()
