"""A folder that several machines reach: on a shared disk, or at a URL that fsspec knows (`s3://`, `gs://`, …).

A file appears under its name when all of it is there. A folder is sent file by file, and last a manifest with the
hashes of the files: a folder without a manifest is incomplete, and what arrives elsewhere is compared with the hashes.
"""

import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from recovery.errors import RecoverError, first_line

MANIFEST = "manifest.json"
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}


@dataclass(frozen=True)
class SharedFolder:
    address: str
    path: str = ""  # within the address

    def __truediv__(self, name: str) -> "SharedFolder":
        return replace(self, path=f"{self.path}/{name}".strip("/"))

    @property
    def label(self) -> str:
        """The address for messages: without a user, a password and a query."""
        return re.sub(r"(?<=://).*@", "", self.address.partition("?")[0])

    def send(self, file: Path, name: str) -> None:
        """Send a file whose name says what it contains, unless it is there already."""
        if not self.has(name):
            self._write(name, partial(self._files.put_file, str(file)))

    def send_text(self, name: str, text: str) -> None:
        self._write(name, lambda target: self._files.pipe_file(target, text.encode()))

    def fetch(self, name: str, file: Path) -> None:
        with self._errors("read"):
            file.parent.mkdir(parents=True, exist_ok=True)
            incomplete = file.with_name(file.name + ".partial")
            self._files.get_file(self._full(name), str(incomplete))
            incomplete.replace(file)

    def read_text(self, name: str) -> str:
        with self._errors("read"):
            return bytes(self._files.cat_file(self._full(name))).decode()

    def names(self, folder: str) -> list[str]:
        """The files in a folder and in the folders in it, relative to it."""
        with self._errors("read"):
            prefix = self._full(folder)
            found = sorted(map(str, self._files.find(prefix)))
            return [self._checked(path[len(prefix) + 1 :]) for path in found if not path.endswith(".partial")]

    def modified(self, name: str) -> datetime:
        with self._errors("read"):
            return cast(datetime, self._files.modified(self._full(name)))

    def delete(self, name: str) -> None:
        """Delete a file or folder; one that is gone is no error."""
        with self._errors("written to"):
            if self._files.exists(target := self._full(name)):
                self._files.rm(target, recursive=True)

    def has(self, name: str) -> bool:
        with self._errors("read"):
            return bool(self._files.exists(self._full(name)))

    def has_folder(self, name: str) -> bool:
        return self.has(f"{name}/{MANIFEST}")

    def send_folder(self, folder: Path, name: str, check: Callable[[], None]) -> None:
        """Send the files of a folder, then their manifest; `check` may raise before each of them."""
        manifest = {}
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            check()
            inside = file.relative_to(folder).as_posix()
            self._write(f"{name}/{inside}", partial(self._files.put_file, str(file)))
            manifest[inside] = {"sha256": _hash(file), "bytes": file.stat().st_size}
        check()
        self.send_text(f"{name}/{MANIFEST}", json.dumps({"files": manifest}, indent=1))

    def fetch_folder(self, name: str, folder: Path) -> bool:
        """Fetch a complete folder; False if there is none."""
        if not self.has_folder(name):
            return False
        with self._errors("read"):
            files = json.loads(self.read_text(f"{name}/{MANIFEST}"))["files"].items()
        # Of its own, since another process may fetch the same folder.
        incomplete = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.partial")
        for file, about in files:
            self.fetch(f"{name}/{file}", incomplete / self._checked(file))
            if _hash(incomplete / file) != about["sha256"]:
                raise RecoverError(
                    f"The file {name}/{file} in the store {self.label} is damaged (another hash than in its "
                    f"manifest). Delete {name} there, and send it again with a command on the machine that has it."
                )
        try:
            incomplete.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
            shutil.rmtree(incomplete)  # another process was faster
        return True

    def _checked(self, name: str) -> str:
        """A name in the store, which must not lead out of the folder that it is fetched into."""
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise RecoverError(f"The store {self.label} has a file with the name {name!r}. Delete it there.")
        return name

    @cached_property
    def _target(self) -> tuple[Any, str]:
        """The file system, and the path of the address in it."""
        import fsspec.core

        files, path = fsspec.core.url_to_fs(self.address, use_listings_cache=False)
        return files, str(path).rstrip("/")

    @property
    def _files(self) -> Any:
        return self._target[0]

    def _full(self, name: str) -> str:
        return "/".join(part for part in (self._target[1], self.path, name) if part)

    def _write(self, name: str, write: Callable[[str], object]) -> None:
        """An object of an object store appears when all of it was sent; elsewhere a file is renamed then."""
        with self._errors("written to"):
            target, protocol = self._full(name), self._files.protocol
            if OBJECT_STORES.intersection([protocol] if isinstance(protocol, str) else protocol):
                write(target)
                return
            self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
            write(target + ".partial")
            self._files.mv(target + ".partial", target)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            advice = "Install what reads it: pip install 'recover[store]'."
            raise RecoverError(f"The store {self.label} needs a library ({first_line(error)}). {advice}") from error
        except RecoverError:
            raise
        except Exception as error:  # every file system has errors of its own
            cause = first_line(error).rstrip(" .").replace(self.address, self.label)
            raise RecoverError(
                f"The store {self.label} could not be {what} ({cause}). Check that address "
                "(store in recover.toml, or RECOVER_STORE) and your access to it; `recover resume` continues what was "
                "interrupted."
            ) from error


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
