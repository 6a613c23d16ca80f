"""The key of a measurement, computed before it is made: stored results with the same key are reused."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from recovery.errors import RecoverError

GENERATION = 10  # part of every key; raise it when the same settings start to give other numbers


def measurement_key(checkpoint: str, task: str, data: str, settings: Mapping[str, Any]) -> str:
    """Hash the checkpoint's hash, the task, the data's hash and all settings that the numbers depend on.

    Settings are compared as JSON: their order does not matter, and 1 differs from "1"."""
    inputs = {
        "generation": GENERATION,
        "lm_eval": version("lm_eval"),
        "checkpoint": checkpoint,
        "task": task,
        "data": data,
        "settings": dict(settings),
    }
    text = json.dumps(inputs, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def data_hash(path: str | Path | None) -> str:
    """Hash a file's bytes, or the names and bytes of all files in a folder but hidden ones. None (generated data) gives
    ""."""
    if path is None:
        return ""
    path = Path(path)
    try:
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        files = [file for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
        return _hash(part for file in files for part in (file.relative_to(path).as_posix().encode(), file.read_bytes()))
    except OSError as error:
        raise RecoverError(
            f"Cannot read {path}: {error.strerror or error}. Check the path and its permissions."
        ) from error


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.hexdigest()
