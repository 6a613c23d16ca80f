"""Every test that takes `url`, `engine`, `tracker` or `reader` runs on SQLite and on a real PostgreSQL."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from sqlalchemy import Engine

from db.engine import open_database
from db.queries import Reader
from db.tracker import Tracker
from tests.db.seeded import Seeded, seed


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Path]:
    try:
        from tests.db import postgres
    except ImportError:
        _missing("psycopg is not installed: pip install 'recover[postgres]'")
    programs = postgres.server_programs()
    if programs is None:
        _missing("no PostgreSQL server is installed here")
    with postgres.cluster(programs) as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/record.db"
        return
    cluster = request.getfixturevalue("postgres_cluster")
    from tests.db.postgres import fresh_database

    with fresh_database(cluster) as address:
        yield address


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
def seeded(tracker: Tracker) -> Seeded:
    return seed(tracker, steps=5)


def _missing(problem: str) -> NoReturn:
    if os.environ.get("RECOVER_REQUIRE_POSTGRES") == "1":
        pytest.fail(f"RECOVER_REQUIRE_POSTGRES=1, but {problem}")
    pytest.skip(problem)
