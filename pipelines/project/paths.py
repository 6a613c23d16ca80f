"""Where a project keeps what is its own, and where that lies now: its folder may have been moved since a path to it was
written down."""

from pathlib import Path

HOME = ".recover"


def relocate(home: Path, file: Path) -> Path:
    """In the project's own folder, if it is there: a copy must not live by what it was copied from."""
    if HOME not in file.parts:
        return file
    inside = len(file.parts) - file.parts[::-1].index(HOME)
    here = home.joinpath(*file.parts[inside:])
    return here if here.exists() else file
