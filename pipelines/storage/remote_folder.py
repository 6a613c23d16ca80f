"""Folders at an address that fsspec knows (`s3://…`, `gs://…`): fetched into a folder here, or sent from one."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.storage.content_cache import content_hash
from recovery.errors import RecoverError, first_line


def is_remote(reference: str) -> bool:
    """Whether it is such an address; those of web pages and of servers are not."""
    return re.match(r"(?!https?:)[a-z][a-z0-9+.-]*://", reference) is not None


@dataclass(frozen=True)
class RemoteFolder:
    address: str

    @property
    def label(self) -> str:
        """The address for messages: without a user, a password and a query."""
        return re.sub(r"(?<=://).*@", "", self.address.partition("?")[0]).rstrip("/")

    def version(self) -> str:
        """Another text whenever a file in the folder was changed; raises RecoverError where there is none."""
        with self._file_system("read") as (files, root):
            found = {path[len(root) :]: str(files.checksum(path)) for path in files.find(root) if path != root}
        if not found:
            raise RecoverError(f"There is no folder {self.label}. Name one that has files, or check your access to it.")
        return content_hash(found)

    def is_empty(self) -> bool:
        with self._file_system("read") as (files, root):
            return not files.find(root)

    def fetch(self, folder: Path) -> None:
        """Fetch all files; the folder appears when it is complete."""
        partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
        try:
            with self._file_system("read") as (files, root):
                for path, about in files.find(root, detail=True).items():
                    _fetch_file(files, path, partial / _inside(path[len(root) + 1 :]), about["size"])
                partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def send(self, folder: Path) -> None:
        """Send all files of a folder."""
        with self._file_system("written to") as (files, root):
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                files.put_file(str(file), f"{root}/{file.relative_to(folder).as_posix()}")

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
                "Install it with `pip install 'recover[store]'`."
            ) from error
        except Exception as error:  # every file system has errors of its own
            cause = first_line(error).rstrip(" .").replace(self.address, self.label)
            raise RecoverError(
                f"The folder {self.label} could not be {what} ({cause}). Check the address, and your access to it."
            ) from error


def _inside(name: str) -> str:
    """A name there, which must not lead out of the folder that it is fetched into."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise RecoverError(f"The remote folder has a file with the name {name!r}. Delete it there.")
    return name


def _fetch_file(files: Any, path: str, target: Path, size: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    files.get_file(path, str(target))
    if target.stat().st_size != size:
        raise OSError(f"{target.name} arrived incomplete")
