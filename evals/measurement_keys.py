"""A name for a measurement before it is made: equal names, equal numbers, so what was measured need not be again."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from recovery.errors import RecoverError

GENERATION = 2  # raised when the same settings come to mean other numbers


def measurement_key(checkpoint: str, task: str, data: str, settings: Mapping[str, Any]) -> str:
    """Of the checkpoint's hash, the task, the data's hash and whatever settings the numbers depend on.

    Settings are told apart as JSON: their order means nothing, 1 and "1" are two things."""
    said = {
        "generation": GENERATION,
        "lm_eval": version("lm_eval"),
        "checkpoint": checkpoint,
        "task": task,
        "data": data,
        "settings": dict(settings),
    }
    try:
        text = json.dumps(said, sort_keys=True, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise RecoverError(f"these settings of {task} cannot be written as JSON ({error})") from error
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def data_hash(path: str | Path | None) -> str:
    """Of a file's bytes, or of all files of a folder and their names; none, of data that has no file (the lab's)."""
    if path is None:
        return ""
    path = Path(path)
    try:
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        return _of(part for file in files for part in (file.relative_to(path).as_posix().encode(), file.read_bytes()))
    except OSError as error:
        raise RecoverError(f"cannot read {path}: {error.strerror or error}") from error


def _of(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.hexdigest()


def _plain(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
