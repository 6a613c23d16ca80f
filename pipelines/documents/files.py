"""The files under a path, in a fixed order, and why some of them cannot be read: nothing outside of it is opened."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from pipelines.documents.file_formats import READERS


def readable_files(folder: Path) -> list[Path]:
    return [file for file, reason in files_under(folder) if not reason and file.suffix.lower() in READERS]


def files_under(path: Path) -> Iterable[tuple[Path, str]]:
    """Each file, and the reason why it cannot be read, or ""."""
    root = path.resolve()
    return _walk(root, root) if root.is_dir() else [(root, "" if root.is_file() else "not a regular file")]


def _walk(folder: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, reason why it cannot be read, or ""), sorted by name, folder by folder.

    Hidden files and folders (.git, .venv, .recover) are skipped: they are not documents."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield folder, f"cannot be listed: {error.strerror or error}"
        return
    for entry in entries:
        path = folder / entry.name
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(path, root)
        else:
            yield path, _unreadable_reason(path, root)


def _unreadable_reason(path: Path, root: Path) -> str:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return "a broken link"
    if not target.is_relative_to(root):
        return "a link to a file outside the folder"
    if target.is_dir():
        return "a link to a folder; folders are read only where they are"
    return "" if target.is_file() else "not a regular file"
