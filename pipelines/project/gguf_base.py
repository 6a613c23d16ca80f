"""A base given as a GGUF file: dequantised once, into the project's own folder. That folder is the base from then on,
so the file may be moved or deleted."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from db.views import GGUF_FOLDER, name_of_base
from pipelines.log import log
from pipelines.project.paths import HOME, REMOTE_BASES, find_root, missing_folders, remove_empty
from recovery.errors import RecoverError
from recovery.models.gguf_dequantisation import dequantise, tensor_types


def dequantised_base(file: Path, home: Path, recorded: str | None) -> str:
    """The model folder made from the file. It is made on first use, unless the project has recorded another base."""
    folder = _model_folder(file, home)
    if folder.is_dir() or recorded not in (None, str(folder)):
        return str(folder)
    types = tensor_types(file)
    total = sum(types.values())
    shares = ", ".join(f"{count / total:.1%} in {name}" for name, count in types.items())
    log.info(f"Dequantising {file.name} to bfloat16 ({shares})")
    folder.parent.mkdir(parents=True, exist_ok=True)
    dequantise(file, folder)
    log.info("Scores are those of these quantised weights; the original model's may be higher")
    return str(folder)


def _model_folder(file: Path, home: Path) -> Path:
    """Where the file's model is or belongs; found by content, so that the file may be renamed."""
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()[:12]
    except FileNotFoundError:
        raise RecoverError(f"There is no file {file}. Name an existing GGUF file, a folder or a hub id.") from None
    except OSError as error:
        raise RecoverError(f"The file {file} cannot be read ({error.strerror}). Name another model.") from error
    models = home.resolve() / GGUF_FOLDER
    return next(models.glob(f"*-{digest}"), models / f"{file.stem}-{digest}")


def describe_base(base: str) -> str:
    """The base for messages: for a GGUF file, its name and the folder of its model."""
    name = name_of_base(base)
    return base if name == base else f"{name}, dequantised in {base}"


@contextmanager
def no_unused_model(folder: Path | None) -> Iterator[None]:
    """Delete what was dequantised or fetched for a command that then created no project, such as a refused one."""
    home = find_root(folder) / HOME
    new_folders = missing_folders(home)
    try:
        yield
    finally:
        if new_folders and home.is_dir() and set(os.listdir(home)) <= {GGUF_FOLDER, REMOTE_BASES, "lock"}:
            shutil.rmtree(home)
            remove_empty(new_folders)
