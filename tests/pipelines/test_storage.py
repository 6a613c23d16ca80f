import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.registry import known_implementations

from pipelines.storage import ContentCache, JsonLines, RemoteFolder, is_remote, open_atomic, write_atomic
from recovery.errors import RecoverError
from tests.full_disk import full_disk


def test_a_file_that_is_not_completely_written_does_not_replace_the_old_one(tmp_path: Path) -> None:
    def interrupted() -> Iterator[str]:
        yield "new"
        raise KeyboardInterrupt

    path = tmp_path / "folder" / "file.txt"
    write_atomic(path, ["old\n", "ä"])
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, interrupted())
    assert path.read_text(encoding="utf-8") == "old\nä"
    with full_disk(3), pytest.raises(OSError, match="File too large"):
        write_atomic(path, ["new file"])
    assert list(path.parent.iterdir()) == [path]


def test_lines_are_appended_after_an_incomplete_last_line_is_cut_off(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "lines.jsonl")
    assert lines.repair() == 0
    lines.append([{"a": "ü"}, 2])
    content = lines.path.read_bytes()
    lines.path.write_bytes(content + '{"b": "ü'.encode()[:-1])  # inside a character
    assert lines.repair() == 2
    lines.append([3])
    assert list(lines) == [{"a": "ü"}, 2, 3]
    assert lines.path.read_bytes() == content + b"3\n"


def test_results_are_computed_once_for_the_same_inputs(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path / "cache")
    calls: list[int] = []

    def compute() -> list[str]:
        calls.append(1)
        return ["ä", "b"]

    assert cache.get_or_write("prompts", ["model", 3], compute) == ["ä", "b"]
    assert cache.get_or_write("prompts", ["model", 3], compute) == ["ä", "b"]
    assert len(calls) == 1
    cache.get_or_write("prompts", ["model", 4], compute)
    cache.get_or_write("answers", ["model", 3], compute)
    assert len(calls) == 3
    damaged = cache.path("prompts", ["model", 3])
    damaged.write_bytes(damaged.read_bytes()[:4])
    assert cache.get_or_write("prompts", ["model", 3], compute) == ["ä", "b"]
    assert len(calls) == 4


def test_a_failed_computation_stores_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("no model")

    with pytest.raises(RuntimeError, match="no model"):
        ContentCache(tmp_path).get_or_write("answers", "x", fail)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(params=["file", "memory", "s3"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteFolder:
    if request.param == "s3":
        return RemoteFolder(request.getfixturevalue("bucket"))
    address = f"file://{tmp_path}/shared disk/model" if request.param == "file" else f"memory://{uuid.uuid4().hex}"
    return RemoteFolder(address)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """On a server of this process that answers as S3 does."""
    s3fs = pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"team-{uuid.uuid4().hex}"  # the servers of a process share their buckets
    s3fs.S3FileSystem().mkdir(name)
    yield f"s3://{name}/models/one/"
    server.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "run-0001"
    (folder / "original").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 100)
    (folder / "original" / "config.json").write_text("{}")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_folder_arrives_as_it_was_sent(remote: RemoteFolder, checkpoint: Path, tmp_path: Path) -> None:
    assert remote.is_empty()
    remote.send(checkpoint)
    assert not remote.is_empty()
    remote.fetch(tmp_path / "there" / "model")
    assert content(tmp_path / "there" / "model") == content(checkpoint)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["model"]
    with pytest.raises(RecoverError, match=r"no files in .*gone to send"):
        remote.send(tmp_path / "gone")


def test_an_object_that_stands_for_a_folder_is_no_file(bucket: str, checkpoint: Path, tmp_path: Path) -> None:
    """Consoles make one where a folder is created."""
    name, _, key = bucket.removeprefix("s3://").partition("/")
    pytest.importorskip("s3fs").S3FileSystem().call_s3("put_object", Bucket=name, Key=key, Body=b"")
    assert RemoteFolder(bucket).is_empty()
    RemoteFolder(bucket).send(checkpoint)
    RemoteFolder(bucket).fetch(tmp_path / "there")
    assert content(tmp_path / "there") == content(checkpoint)


def test_what_was_sent_in_part_is_deleted(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkpoint / "config.json").write_text("{}")
    remote, files, sent = RemoteFolder(f"memory://{uuid.uuid4().hex}"), fsspec.filesystem("memory"), list[str]()
    put = type(files).put_file

    def breaks(self: Any, file: str, path: str, **kwargs: Any) -> None:
        sent.append(Path(file).name)
        if len(sent) == 3:
            raise OSError("the network is gone")
        put(self, file, path, **kwargs)

    monkeypatch.setattr(type(files), "put_file", breaks)
    with pytest.raises(RecoverError, match="could not be written to"):
        remote.send(checkpoint)
    assert sent[0] == "model.safetensors"
    monkeypatch.undo()
    assert remote.is_empty()


def test_what_cannot_be_deleted_is_told(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = fsspec.filesystem("memory")

    def refused(*args: Any, **kwargs: Any) -> None:
        raise OSError("access denied")

    monkeypatch.setattr(type(files), "put_file", refused)
    monkeypatch.setattr(type(files), "rm_file", refused)
    with pytest.raises(RecoverError, match=r"\(access denied\) and has a part of the model\. Delete that part there"):
        RemoteFolder(f"memory://{uuid.uuid4().hex}").send(checkpoint)


def test_the_version_is_another_when_a_file_was_changed(remote: RemoteFolder, checkpoint: Path) -> None:
    with pytest.raises(RecoverError, match="There is no folder"):
        remote.version()
    remote.send(checkpoint)
    version = remote.version()
    assert RemoteFolder(remote.address).version() == version
    (checkpoint / "original" / "config.json").write_text("[]")
    remote.send(checkpoint)
    assert remote.version() != version


def test_what_goes_wrong_is_one_sentence_and_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecoverError, match=r"nowhere://x could not be read \(Protocol not known: nowhere\)\. Check"):
        RemoteFolder("nowhere://x").version()
    files = fsspec.filesystem("memory")
    files.pipe_file("/hostile/../../evil", b"x")
    with pytest.raises(RecoverError, match="has a file with the name"):
        RemoteFolder("memory://hostile").fetch(tmp_path / "there")
    files.pipe_file("/half/weights", b"all of it")
    monkeypatch.setattr(type(files), "get_file", lambda self, path, target: Path(target).write_bytes(b"all"))
    with pytest.raises(RecoverError, match="weights arrived incomplete"):
        RemoteFolder("memory://half").fetch(tmp_path / "there")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known_implementations, "far", {"class": "no_such.Far", "err": "Install farfs"})
    with pytest.raises(RecoverError, match=r"not installed \(Install farfs\)\. Install recover's extra `store`"):
        RemoteFolder("far://bucket/model").version()


@pytest.mark.parametrize("address", ["ftp://u:p/ss@host/x", "ftp://u:p@ss@host/x", "ftp://host/x?key=secret"])
def test_the_label_has_no_secret(address: str) -> None:
    assert RemoteFolder(address).label == "ftp://host/x"


def test_addresses_of_servers_and_folders_are_not_remote_folders() -> None:
    assert is_remote("s3://bucket/model")
    for other in ("org/name", "./model", "http://127.0.0.1:8000", "https://huggingface.co/org/name"):
        assert not is_remote(other)


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    file = tmp_path / "entry.json"
    with open_atomic(file) as first:
        first.write(b"first, and longer")
        with open_atomic(file) as second:
            second.write(b"second")
        assert file.read_bytes() == b"second"
    assert file.read_bytes() == b"first, and longer"
    assert [path.name for path in tmp_path.iterdir()] == ["entry.json"]
