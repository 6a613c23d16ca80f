"""Files that survive a power failure."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Have the disk store a file, or a folder with all its files: else their new name may be stored before them."""
    for each in (*path.rglob("*"), path):
        if each.is_file():
            with each.open("rb") as file:
                os.fsync(file.fileno())
