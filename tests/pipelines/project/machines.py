"""Folders that stand for machines: each has its own recover.toml, all name one project, one record and one store."""

from pathlib import Path

from sqlalchemy import update

from db.database_time import database_time
from db.engine import open_database
from db.tables import Lease
from pipelines.project.project import Project


def machine(folder: Path, url: str, store: str | None = None, name: str = "handbook") -> Path:
    folder.mkdir(parents=True)
    lines = [f'name = "{name}"', f'db = "{url}"', *([f'store = "{store}"'] if store else [])]
    (folder / "recover.toml").write_text("\n".join(lines))
    return folder


def open_on(folder: Path, url: str, store: str | None = None, name: str = "handbook") -> Project:
    return Project.open(machine(folder, url, store, name))


def expire_leases(url: str) -> None:
    engine = open_database(url)
    with engine.begin() as connection:
        connection.execute(update(Lease).values(expires_at=database_time(-1)))
    engine.dispose()
