"""What recover.toml and the environment say of a project that several machines may work on: its name in the record, the
record, and the store."""

import os
from pathlib import Path

from pipelines.settings.sources import read_toml
from recovery.errors import RecoverError


def declared_name(root: Path) -> str | None:
    return _in_toml(root, "name", "text in quotes")


def declared_database(root: Path) -> str | None:
    """RECOVER_DB, else `db` in recover.toml: a URL, or a path that is relative to the file."""
    in_toml = _in_toml(root, "db", "a database URL in quotes")
    return os.environ.get("RECOVER_DB") or _absolute(in_toml, root)


def declared_store(root: Path, *, is_shared: bool) -> str | None:
    """RECOVER_STORE, else `store` in recover.toml: a URL, or a path that is relative to the file. The variable is for
    projects of a shared record; others on the same machine have none."""
    in_toml = _absolute(_in_toml(root, "store", "a folder or a URL in quotes"), root)
    if is_shared:
        return _absolute(os.environ.get("RECOVER_STORE"), Path.cwd()) or in_toml
    if in_toml:
        raise RecoverError(
            "A store is for a record that several machines reach. Name a PostgreSQL database with db in "
            "recover.toml or with RECOVER_DB, or remove the setting store."
        )
    return None


def _in_toml(root: Path, setting: str, kind: str) -> str | None:
    value = read_toml(root).get(setting)
    if value is not None and not (isinstance(value, str) and value.strip()):
        file = root / "recover.toml"
        raise RecoverError(f"The setting {setting} in {file} is {value!r}. It must be {kind}.")
    return value.strip() if value else None


def _absolute(address: str | None, folder: Path) -> str | None:
    if not address or "://" in address:
        return address or None
    return os.path.normpath(folder / Path(address).expanduser())
