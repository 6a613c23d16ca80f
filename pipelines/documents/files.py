"""List the files under a path. Files outside of it are never opened; unreadable files are listed with a reason."""

import os
from collections.abc import Iterator
from pathlib import Path


def files_in(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield (file, reason why it cannot be read, or ""), sorted by name, folder by folder.

    Hidden files and folders (.git, .venv, .recover) are skipped: they are not documents."""
    root = root.resolve()
    if root.is_dir():
        yield from _walk(root, root)
    else:
        yield root, "" if root.is_file() else "not a regular file"


def _walk(folder: Path, root: Path) -> Iterator[tuple[Path, str]]:
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
