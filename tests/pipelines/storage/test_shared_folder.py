"""A folder that several machines reach, by path and by URLs of two kinds of file systems."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.storage.shared_folder import MANIFEST, SharedFolder
from recovery.errors import RecoverError


def no_check() -> None:
    pass


@pytest.fixture(params=["path", "file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SharedFolder:
    if request.param == "s3":
        return SharedFolder(request.getfixturevalue("bucket"))
    return SharedFolder(
        {
            "path": str(tmp_path / "shared disk"),
            "file": f"file://{tmp_path}/shared",
            "memory": f"memory://{uuid.uuid4().hex}",  # the process has one
        }[request.param]
    )


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """On a server of this process that answers as S3 does."""
    s3fs = pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (
        ("ENDPOINT_URL", f"http://{host}:{port}"),
        ("ACCESS_KEY_ID", "a"),
        ("SECRET_ACCESS_KEY", "b"),
        ("DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"team-{uuid.uuid4().hex}"  # the servers of a process share their buckets
    s3fs.S3FileSystem().mkdir(name)
    yield f"s3://{name}/recover"
    server.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "run-0001"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 100)
    (folder / "config.json").write_text("{}")
    return folder


def test_a_folder_arrives_as_it_was_sent(store: SharedFolder, checkpoint: Path, tmp_path: Path) -> None:
    project, elsewhere = store / "handbook", tmp_path / "there" / "run-0001"
    assert not project.fetch_folder("checkpoints/one", elsewhere)
    project.send_folder(checkpoint, "checkpoints/one", no_check)
    assert project.fetch_folder("checkpoints/one", elsewhere)
    assert {file.name: file.read_bytes() for file in elsewhere.iterdir()} == {
        file.name: file.read_bytes() for file in checkpoint.iterdir()
    }
    assert project.names("checkpoints") == ["one/config.json", f"one/{MANIFEST}", "one/model.safetensors"]
    assert not (store / "other").has_folder("checkpoints/one")


def test_a_folder_is_complete_with_its_manifest_only(store: SharedFolder, checkpoint: Path, tmp_path: Path) -> None:
    sent = 0

    def stop() -> None:
        nonlocal sent
        sent += 1
        if sent == 3:  # all files are there
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.send_folder(checkpoint, "one", stop)
    assert store.names("one") == ["config.json", "model.safetensors"]
    assert not store.fetch_folder("one", tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_damaged_file_is_refused(store: SharedFolder, checkpoint: Path, tmp_path: Path) -> None:
    store.send_folder(checkpoint, "one", no_check)
    store.send_text("one/model.safetensors", "else")
    with pytest.raises(RecoverError, match=r"one/model\.safetensors in the store .* is damaged"):
        store.fetch_folder("one", tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_texts_and_single_files(store: SharedFolder, checkpoint: Path, tmp_path: Path) -> None:
    assert store.names("jobs") == []
    store.send_text("jobs/a.json", json.dumps({"é": 1}))
    assert json.loads(store.read_text("jobs/a.json")) == {"é": 1}
    store.send(checkpoint / "config.json", "documents/b.json")
    store.send(checkpoint / "model.safetensors", "documents/b.json")  # the name says what it contains
    store.fetch("documents/b.json", tmp_path / "there" / "b.json")
    assert (tmp_path / "there" / "b.json").read_text() == "{}"
    assert store.modified("jobs/a.json") <= store.modified("documents/b.json")
    store.delete("jobs/a.json")
    store.delete("jobs/a.json")
    assert (store.names("jobs"), store.has("jobs/a.json")) == ([], False)


def test_what_goes_wrong_is_one_sentence_with_the_address(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecoverError, match=r"The store .*/file could not be written to \(.*recover\.toml"):
        SharedFolder(str(tmp_path / "file")).send_text("a", "b")
    with pytest.raises(RecoverError, match=r"The store nowhere://x could not be read \(Protocol not known"):
        SharedFolder("nowhere://x").names("jobs")
    with pytest.raises(RecoverError, match="could not be read"):
        SharedFolder(str(tmp_path)).fetch("missing", tmp_path / "there")


def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    store, there = SharedFolder(str(tmp_path / "store")), tmp_path / "there"
    (tmp_path / "store" / "run").mkdir(parents=True)
    (tmp_path / "store" / "evil").write_text("x")
    manifest = {"files": {"../evil": {"sha256": "0" * 64, "bytes": 1}}}
    (tmp_path / "store" / "run" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RecoverError, match=r"has a file with the name '\.\./evil'\. Delete it there\."):
        store.fetch_folder("run", there / "run")
    assert not (there / "evil").exists()


def test_a_damaged_manifest_is_one_sentence(tmp_path: Path) -> None:
    store = SharedFolder(str(tmp_path / "store"))
    (tmp_path / "store" / "run").mkdir(parents=True)
    (tmp_path / "store" / "run" / "manifest.json").write_text("half {")
    with pytest.raises(RecoverError, match="could not be read"):
        store.fetch_folder("run", tmp_path / "there" / "run")


def test_two_processes_may_fetch_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, there, fetch = SharedFolder(str(tmp_path / "store")), tmp_path / "there" / "run", SharedFolder.fetch
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "weights").write_text("w")
    store.send_folder(tmp_path / "run", "run", lambda: None)

    def slow(self: SharedFolder, name: str, file: Path) -> None:
        monkeypatch.setattr(SharedFolder, "fetch", fetch)
        assert store.fetch_folder("run", there)  # the other process, meanwhile
        fetch(self, name, file)

    monkeypatch.setattr(SharedFolder, "fetch", slow)
    assert store.fetch_folder("run", there)
    assert [path.name for path in there.parent.iterdir()] == ["run"]
    assert (there / "weights").read_text() == "w"


@pytest.mark.parametrize("address", ["ftp://u:p/ss@host/x", "ftp://u:p@ss@host/x", "ftp://host/x?key=secret"])
def test_the_label_has_no_secret(address: str) -> None:
    assert SharedFolder(address).label == "ftp://host/x"
