"""Where things are: the project's folder, its own files after it was moved, and its clean model."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from db import GGUF_FOLDER, name_of_base
from pipelines.log import log
from pipelines.settings.sources import PROJECT_SETTINGS, read_toml
from pipelines.storage import RemoteFolder, is_remote
from recovery.errors import RecoverError
from recovery.lab import BASE as LAB_BASE
from recovery.lab import installed_base_path
from recovery.models.gguf_dequantisation import dequantise, names_gguf, tensor_types

HOME = ".recover"
REMOTE_BASES = "bases"  # folder of those that were fetched
EXPORT = "export-"  # beginning of the names of folders that are sent to an address
FIXED = "fixed"  # folder of copies of models from outside whose tokenizer or generation config was mended


def project_option(root: Path) -> list[str]:
    """What names the project in a command that is typed in the working directory."""
    return [] if find_root(None) == root else ["--project", str(root)]


def find_root(folder: Path | None) -> Path:
    """The folder itself, if there is one; else the nearest folder from the working directory upwards that holds a
    `.recover` folder, or the working directory."""
    cwd = Path.cwd()
    return folder or next((parent for parent in [cwd, *cwd.parents] if (parent / HOME).is_dir()), cwd)


@contextmanager
def no_empty_folders(folder: Path) -> Iterator[list[Path]]:
    """Yield those of the folder and its parents that do not exist. At the end, delete the ones that were created and
    that nothing was written into."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield missing
    finally:
        with suppress(OSError):
            for path in missing:
                if path.exists():
                    path.rmdir()


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


class Base(NamedTuple):
    model: str  # a folder or hub id
    is_default: bool  # the built-in model, because none was configured


def resolve_base(folder: Path | None, flag: str | None = None) -> Base:
    """The configured base: `--base`, else RECOVER_BASE, else `base` in recover.toml, else the built-in model.

    `Project.open` prefers the base in the record. Raises RecoverError for any setting in recover.toml that does not
    exist or fit, so that all commands refuse the file alike."""
    root = find_root(folder)
    values = read_toml(root)
    if values.keys() - PROJECT_SETTINGS.keys():
        from pipelines.settings.resolve import check_toml  # with pydantic, whose import would slow `recover status`

        check_toml(values)
    in_toml = values.get("base")
    if in_toml is not None and not isinstance(in_toml, str):
        raise RecoverError(
            f"The setting base in {root / 'recover.toml'} is {in_toml!r}. It must be a folder or a hub id in quotes."
        )
    if in_toml and (root / in_toml).exists():
        in_toml = str(root / in_toml)  # a path in the file is relative to the file
    configured = flag or os.environ.get("RECOVER_BASE") or in_toml
    return Base(absolute_if_exists(configured or str(LAB_BASE)), not configured)


def local_base(base: str, home: Path, recorded: str | None) -> str:
    """The base as a folder or hub id: one in an object store is fetched, a GGUF file dequantised, on first use, unless
    the project has recorded another base."""
    if is_remote(base):
        remote = RemoteFolder(base)
        folder = home.resolve() / REMOTE_BASES / f"{remote.label.rpartition('/')[2]}-{remote.version()[:12]}"
        if not folder.is_dir() and recorded in (None, str(folder)):
            log.info(f"Fetching {remote.label}")
            remote.fetch(folder)
        return str(folder)
    if names_gguf(base):
        folder = _model_folder(Path(base), home)
        if not folder.is_dir() and recorded in (None, str(folder)):
            _dequantise(Path(base), folder)
        return str(folder)
    return base


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


def _dequantise(file: Path, folder: Path) -> None:
    types = tensor_types(file)
    total = sum(types.values())
    shares = ", ".join(f"{count / total:.1%} in {name}" for name, count in types.items())
    log.info(f"Dequantising {file.name} to bfloat16 ({shares})")
    folder.parent.mkdir(parents=True, exist_ok=True)
    dequantise(file, folder)
    log.info("Scores are those of these quantised weights; the original model's may be higher")


def locate_base(recorded: str, root: Path) -> str:
    """The recorded base where it is now: the built-in model may be installed elsewhere, and a base inside the project
    folder moves with it. A copied project uses its own copy of a base that was dequantised or fetched."""
    for own in (GGUF_FOLDER, REMOTE_BASES):
        copy = root / HOME / own / Path(recorded).name
        if Path(recorded).parent.match(f"{HOME}/{own}") and copy.is_dir():
            return str(copy)
    if os.path.isdir(recorded) or not os.path.isabs(recorded):
        return recorded
    if built_in := installed_base_path(recorded):
        return built_in
    parts = Path(recorded).parts
    inside = (root.joinpath(*parts[first:]) for first in range(1, len(parts)))
    return next((str(folder) for folder in inside if folder.is_dir()), recorded)


def describe_base(base: str) -> str:
    """The base for messages: for a GGUF file, its name and the folder of its model."""
    name = name_of_base(base)
    return base if name == base else f"{name}, dequantised in {base}"


@contextmanager
def no_unused_model(folder: Path | None) -> Iterator[None]:
    """Delete what was dequantised or fetched for a command that then created no project, such as a refused one."""
    home = find_root(folder) / HOME
    with no_empty_folders(home) as missing:
        try:
            yield
        finally:
            if missing and home.is_dir() and set(os.listdir(home)) <= {GGUF_FOLDER, REMOTE_BASES, "lock"}:
                shutil.rmtree(home)
