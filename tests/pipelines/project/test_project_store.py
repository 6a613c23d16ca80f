"""What machines leave for each other: the newest complete state of a run, and nothing that is not recorded."""

from pathlib import Path

import pytest

from db.leases import LeaseLost
from pipelines.project.project_store import ProjectStore
from pipelines.storage.shared_folder import SharedFolder


@pytest.fixture
def store(tmp_path: Path) -> ProjectStore:
    return ProjectStore(SharedFolder(str(tmp_path / "store")), tmp_path / ".recover")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "run-0001"
    (folder / "optimizer").mkdir(parents=True)  # of a training on several processes
    (folder / "optimizer" / "part").write_text("0")
    (folder / "state.pt").write_text("step 3")
    return folder


def holds() -> None:
    """The lease."""


def lost() -> None:
    raise LeaseLost("taken over")


def sent(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "store" / "progress" / "run-0001").iterdir())


def fetched(store: ProjectStore, tmp_path: Path) -> str:
    folder = tmp_path / "there" / "run-0001"
    assert store.fetch_progress(folder.name, -1, folder)
    assert (folder / "optimizer" / "part").is_file()
    return (folder / "state.pt").read_text()


def test_a_later_state_of_a_run_replaces_the_earlier_one(store: ProjectStore, state: Path, tmp_path: Path) -> None:
    store.send_progress(state, (1, 9), holds)
    (state / "state.pt").write_text("step 10")
    store.send_progress(state, (1, 10), holds)
    store.send_progress(state, (1, 10), holds)
    assert sent(tmp_path) == ["1-10"]
    assert fetched(store, tmp_path) == "step 10"
    store.delete_progress("run-0001")
    assert not store.fetch_progress("run-0001", -1, tmp_path / "elsewhere" / "run-0001")
    assert not (tmp_path / "elsewhere").exists()


def test_the_state_of_the_last_holder_counts_and_an_incomplete_one_does_not(
    store: ProjectStore, state: Path, tmp_path: Path
) -> None:
    store.send_progress(state, (2, 4), holds)
    with pytest.raises(LeaseLost):
        store.send_progress(state, (1, 90), lost)
    (tmp_path / "store" / "progress" / "run-0001" / "3-5").mkdir()
    (tmp_path / "store" / "progress" / "run-0001" / "3-5" / "state.pt").write_text("half")  # killed while it sent
    assert sent(tmp_path) == ["2-4", "3-5"]
    assert fetched(store, tmp_path) == "step 3"


def test_others_than_those_named_are_deleted(store: ProjectStore, state: Path, tmp_path: Path) -> None:
    for hash in ("a" * 64, "b" * 64):
        store.send_checkpoint(state, hash, holds)
    with pytest.raises(LeaseLost):
        store.delete_all_except("checkpoints", set, lost)
    store.delete_all_except("checkpoints", lambda: {f"run-0001@{'b' * 12}"}, holds)
    store.delete_all_except("progress", set, holds)
    assert not store.has_checkpoint(state, "a" * 64)
    assert store.has_checkpoint(state, "b" * 64)
