"""Files on disk and elsewhere: written atomically, cached by content, or in a folder at an address."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

from recovery.errors import RecoverError, first_line
from recovery.files import sync


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file for writing; it appears at `path` only when the disk has stored all of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{token_hex(4)}.partial")  # another process may write the same file
    try:
        with partial.open("wb") as out:
            yield out
        sync(partial)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(path)


def write_atomic(path: Path, pieces: Iterable[str]) -> None:
    with open_atomic(path) as out:
        out.writelines(piece.encode("utf-8") for piece in pieces)


@dataclass(frozen=True)
class JsonLines:
    """A file with one JSON value on each line. Iterating reads it line by line."""

    path: Path

    def __iter__(self) -> Iterator[Any]:
        with self.path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)

    def write(self, values: Iterable[Any]) -> None:
        write_atomic(self.path, map(_line, values))

    def append(self, values: Iterable[Any]) -> None:
        """Write each value as soon as it comes, so that an interruption loses at most one line."""
        with self.path.open("a", encoding="utf-8") as out:
            for value in values:
                print(_line(value), end="", file=out, flush=True)

    def repair(self) -> int:
        """Create the file if it is missing, and cut off an incomplete last line. Return the number of lines."""
        content = self.path.read_bytes() if self.path.is_file() else b""
        complete = content[: content.rfind(b"\n") + 1]  # the cut may be inside a multi-byte character
        if complete != content or not self.path.is_file():
            write_atomic(self.path, [complete.decode("utf-8")])
        return complete.count(b"\n")


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def content_hash(inputs: Any) -> str:
    """SHA-256 of a string, or of any other value's JSON."""
    text = inputs if isinstance(inputs, str) else json.dumps(inputs, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


HASH_DIGITS = 16  # of the hash of documents, in the names of cached files that were made from them


@dataclass(frozen=True)
class ContentCache:
    """Expensive results on disk: each file is named by a hash of everything that decides its content."""

    folder: Path

    def path(self, kind: str, inputs: Any, suffix: str = ".json") -> Path:
        """Where the result of these inputs is stored, whether it exists or not: `<kind>-<hash><suffix>`."""
        return self.folder / f"{kind}-{content_hash(inputs)[:16]}{suffix}"

    def get_or_write(self, kind: str, inputs: Any, compute: Callable[[], Any]) -> Any:
        """Return the stored JSON value of these inputs; compute and store it first if it is missing or damaged."""
        path = self.path(kind, inputs)
        with suppress(FileNotFoundError, ValueError):
            return json.loads(path.read_text(encoding="utf-8"))
        write_atomic(path, [json.dumps(compute(), ensure_ascii=False)])
        return json.loads(path.read_text(encoding="utf-8"))


def is_remote(reference: str) -> bool:
    """Whether it is an address of files (`s3://…`, `gs://…`); those of web pages and of servers are not."""
    return re.match(r"(?!https?:)[a-z][a-z0-9+.-]*://", reference) is not None


CONFIGS = ("config.json", "adapter_config.json")


@dataclass(frozen=True)
class RemoteFolder:
    """A folder at an address that fsspec knows: fetched into a folder here, or sent from one."""

    address: str

    @property
    def label(self) -> str:
        """The address for messages: without a user, a password and a query."""
        return re.sub(r"(?<=://).*@", "", self.address.partition("?")[0]).rstrip("/")

    def version(self) -> str:
        """Another text whenever a file in the folder was changed; raises RecoverError where there is none."""
        with self._file_system("read") as (files, root):
            found = {path[len(root) :]: str(files.checksum(path)) for path in _sizes(files, root)}
        if not found:
            raise RecoverError(f"There is no folder {self.label}. Name one that has files, or check your access to it.")
        return content_hash(found)

    def is_empty(self) -> bool:
        with self._file_system("read") as (files, root):
            return not _sizes(files, root)

    def fetch(self, folder: Path) -> None:
        """Fetch all files; the folder appears when it is complete."""
        partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
        try:
            with self._file_system("read") as (files, root):
                for path, size in _sizes(files, root).items():
                    target = partial / _inside(path[len(root) + 1 :])
                    target.parent.mkdir(parents=True, exist_ok=True)
                    files.get_file(path, str(target))
                    if target.stat().st_size != size:
                        raise OSError(f"{target.name} arrived incomplete")
                partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def send(self, folder: Path) -> None:
        """A folder that was sent in part has no config, so that nothing loads it, and what was sent is deleted."""
        found = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.name in CONFIGS)
        if not found:
            raise RecoverError(f"There are no files in {folder} to send to {self.label}. Run the command again.")
        with self._file_system("written to") as (files, root):
            sent = list[str]()
            try:
                for file in found:
                    sent.append(f"{root}/{file.relative_to(folder).as_posix()}")
                    files.put_file(str(file), sent[-1])
            except BaseException as error:
                if not _deleted(files, sent) and isinstance(error, Exception):
                    cause = first_line(error).rstrip(" .")
                    raise RecoverError(
                        f"The folder {self.label} could not be written to ({cause}) and has a part of the model. "
                        "Delete that part there."
                    ) from error
                raise

    @contextmanager
    def _file_system(self, what: str) -> Iterator[tuple[Any, str]]:
        """The file system, and the path of the folder in it; whatever goes wrong is one sentence."""
        import fsspec.core

        local = {"auto_mkdir": True} if self.address.startswith("file:") else {}
        try:
            files, root = fsspec.core.url_to_fs(self.address, use_listings_cache=False, **local)
            yield files, str(root).rstrip("/")
        except RecoverError:
            raise
        except ImportError as error:
            raise RecoverError(
                f"The folder {self.label} needs a library that is not installed ({first_line(error).rstrip(' .')}). "
                "Install recover's extra `store`."
            ) from error
        except Exception as error:  # every file system has errors of its own
            cause = first_line(error).rstrip(" .").replace(self.address, self.label)
            raise RecoverError(
                f"The folder {self.label} could not be {what} ({cause}). Check the address, and your access to it."
            ) from error


def _sizes(files: Any, root: str) -> dict[str, int]:
    """The files of a folder with their sizes, without the empty objects that stand for folders in some stores."""
    found = files.find(root, detail=True).items()
    return {path: about["size"] for path, about in found if path != root and not path.endswith("/")}


def _deleted(files: Any, paths: Iterable[str]) -> bool:
    try:
        for path in paths:
            with suppress(FileNotFoundError):  # the last one may not be there
                files.rm_file(path)
    except Exception:
        return False
    return True


def _inside(name: str) -> str:
    """A name there, which must not lead out of the folder that it is fetched into."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise RecoverError(f"The remote folder has a file with the name {name!r}. Delete it there.")
    return name
