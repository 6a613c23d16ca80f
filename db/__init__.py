"""The record: a database of projects, cycles, runs, checkpoints, scores and decisions."""

import re
from pathlib import Path

GGUF_FOLDER = "gguf"  # in `.recover`; the model made from a file is in a folder with its name and the content's hash


class RecordError(Exception):
    """The record could not be opened, read or written. The message says what to do about it."""


def name_of_base(base: str) -> str:
    """The name of the GGUF file that the base was made from, else the folder or hub id."""
    path = Path(base)
    made_from = re.fullmatch(r"(.+)-[0-9a-f]{12}", path.name) if path.parent.name == GGUF_FOLDER else None
    return f"{made_from[1]}.gguf" if made_from else base
