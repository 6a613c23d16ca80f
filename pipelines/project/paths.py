"""The project folder: how it is found, and where its own files are after the folder was moved."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

HOME = ".recover"
REMOTE_BASES = "bases"  # folder of those that were fetched


def find_root(folder: Path | None) -> Path:
    """The folder itself, if there is one; else the nearest folder from the working directory upwards that holds a
    `.recover` folder, or the working directory."""
    cwd = Path.cwd()
    return folder or next((parent for parent in [cwd, *cwd.parents] if (parent / HOME).is_dir()), cwd)


def missing_folders(folder: Path) -> list[Path]:
    """Those of the folder and its parents that do not exist, the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def remove_empty(folders: Iterable[Path]) -> None:
    """Delete the folders, the innermost first, up to one that something has been written into."""
    with suppress(OSError):
        for folder in folders:
            if folder.exists():
                folder.rmdir()


def relocate(home: Path, file: Path) -> Path:
    """The file under the current `home`, if it exists there: a copied project must not read from the original.

    Paths outside a `.recover` folder stay as they are."""
    if HOME not in file.parts:
        return file
    inside = len(file.parts) - file.parts[::-1].index(HOME)
    current = home.joinpath(*file.parts[inside:])
    return current if current.exists() else file


def absolute_if_exists(path_or_id: str) -> str:
    """An existing file or folder as an absolute path, so that it means the same from any working directory; a hub id
    or a missing path unchanged."""
    path = Path(path_or_id).expanduser()
    return str(path.resolve()) if path.exists() else path_or_id
