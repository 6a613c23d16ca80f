"""Every test that takes `url`, `engine`, `tracker` or `reader` runs on SQLite and on a real PostgreSQL."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest
from sqlalchemy import Engine

from db.engine import open_database
from db.queries import Reader
from db.tracker import Tracker
from tests.db.seeded import Seeded, copy_record, seed, seeded_database


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/record.db"
        return
    yield request.getfixturevalue("postgres_url")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = open_database(url)
    yield engine
    engine.dispose()


@pytest.fixture
def tracker(engine: Engine) -> Iterator[Tracker]:
    with Tracker(engine, pause=0.02) as tracker:
        yield tracker


@pytest.fixture
def reader(engine: Engine) -> Reader:
    return Reader(engine)


@pytest.fixture
def project(tracker: Tracker) -> int:
    return tracker.project("handbook", "/home/ada/handbook", "lab")


@pytest.fixture
def base(tracker: Tracker, project: int) -> int:
    return tracker.checkpoint(project, "base", "/models/lab")


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Seeded]:
    path = tmp_path_factory.mktemp("record") / "record.db"
    return path, seeded_database(path, steps=5)


@pytest.fixture
def seeded(request: pytest.FixtureRequest, engine: Engine, tracker: Tracker) -> Seeded:
    """Three cycles; on SQLite copied, as writing them takes longer."""
    if engine.dialect.name != "sqlite":
        return seed(tracker, steps=5)
    path, seeded = request.getfixturevalue("history")
    copy_record(path, engine)
    return deepcopy(seeded)
