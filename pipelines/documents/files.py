"""Which files a path means. Nothing outside of it is ever opened, and what is left alone is named with the reason."""

import os
from collections.abc import Iterator
from pathlib import Path


def files_in(root: Path) -> Iterator[tuple[Path, str]]:
    """Each file with the reason it cannot be read ("" where it can), in the order of their names, folder by folder.

    Hidden files and folders (.git, .venv, .recover) are not what anyone means by their documents."""
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
            yield path, _why_not(path, root)


def _why_not(path: Path, root: Path) -> str:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return "a link that leads nowhere"
    if not target.is_relative_to(root):
        return "a link that leads out of the folder"
    if target.is_dir():
        return "a link to a folder, which is read where it is"
    return "" if target.is_file() else "not a regular file"
