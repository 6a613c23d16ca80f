from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine

from dashboard.server.serve import open_dashboard
from db.engine import open_database
from db.queries import Reader
from db.tracker import Tracker
from tests.db.seeded import Seeded, seed, seeded_database


@pytest.fixture(scope="session")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of three cycles, the third rejected; for reading only."""
    path = tmp_path_factory.mktemp("record") / "record.db"
    seeded_database(path)
    return path


@pytest.fixture
def reader(record: Path) -> Iterator[Reader]:
    engine = open_database(record)
    yield Reader(engine)
    engine.dispose()


@pytest.fixture
def serving() -> Iterator[Callable[..., str]]:
    """`serving(reader)` returns the dashboard's address. Request it before `visit`: pages must close first."""
    with ExitStack() as stack:
        yield lambda reader, **options: stack.enter_context(open_dashboard(reader, **options))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Of an empty record."""
    engine = open_database(tmp_path / "record.db")
    yield engine
    engine.dispose()


@pytest.fixture
def tracker(engine: Engine) -> Iterator[Tracker]:
    with Tracker(engine) as tracker:
        yield tracker


@pytest.fixture
def written(engine: Engine) -> Reader:
    """Reads what `tracker` writes."""
    return Reader(engine)


@pytest.fixture
def seeded(tracker: Tracker) -> Seeded:
    """Three cycles in the record of `tracker`; the last was rejected after 40 steps."""
    return seed(tracker)


@pytest.fixture
def url(serving: Callable[..., str], reader: Reader) -> str:
    return serving(reader)
