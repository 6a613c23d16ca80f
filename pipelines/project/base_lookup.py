"""The clean model of a project: which one is configured, and where the recorded one is now."""

import os
from pathlib import Path
from typing import NamedTuple

from db.views import GGUF_FOLDER
from pipelines.project.gguf_base import dequantised_base
from pipelines.project.paths import HOME, REMOTE_BASES, absolute_if_exists, find_root
from pipelines.project.remote_base import fetched_base
from pipelines.settings.sources import PROJECT_SETTINGS, read_toml
from pipelines.storage.remote_folder import is_remote
from recovery.errors import RecoverError
from recovery.lab import BASE as LAB_BASE
from recovery.lab import installed_base_path
from recovery.models.gguf_dequantisation import names_gguf


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
    """The base as a folder or hub id: one in an object store is fetched, a GGUF file dequantised, on first use."""
    if is_remote(base):
        return fetched_base(base, home, recorded)
    return dequantised_base(Path(base), home, recorded) if names_gguf(base) else base


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
