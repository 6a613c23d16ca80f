"""Files that are complete or absent, whatever happens while they are written: on a full disk, or when power fails."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recovery.errors import RecoverError, first_line

THEN_RESUME = "Free space there, and go on with `recover resume`."


@contextmanager
def stored(partial: Path, folder: Path, advice: str = THEN_RESUME) -> Iterator[None]:
    """Have the disk store what the block writes to `partial`, which will be named `folder`.

    What cannot be written becomes one sentence, and whatever fails leaves nothing of it."""
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    try:
        partial.mkdir(parents=True)
        yield
        sync(partial)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if reason := _write_problem(error):
            raise RecoverError(f"Cannot write to {folder} ({reason}). {advice}") from error
        raise


def _write_problem(error: BaseException) -> str | None:
    """Of safetensors and tokenizers the reason is at the end; torch gives none."""
    if isinstance(error, OSError):
        return error.strerror or first_line(error)
    if found := re.search(r"([^:]+) \(os error \d+\)", str(error)):
        return found[1].strip()
    return "the disk may be full" if "inline_container" in str(error) else None


def sync(path: Path) -> None:
    """Have the disk store a file, or a folder with all its files: else their new name may be stored before them."""
    for each in (*path.rglob("*"), path):
        if each.is_file():
            with each.open("rb") as file:
                os.fsync(file.fileno())
