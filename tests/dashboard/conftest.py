from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path

import pytest
from sqlalchemy import Engine

from dashboard.server.serve import open_dashboard
from db.engine import open_database
from db.queries import Reader
from db.tracker import Tracker
from tests.db.seeded import Seeded, copy_record, seeded_database


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Seeded]:
    """A record of three cycles, the third rejected after 40 steps; for reading only."""
    path = tmp_path_factory.mktemp("record") / "record.db"
    return path, seeded_database(path)


@pytest.fixture(scope="session")
def record(history: tuple[Path, Seeded]) -> Path:
    return history[0]


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
def seeded(engine: Engine, history: tuple[Path, Seeded]) -> Seeded:
    """The same three cycles in the record of `tracker`, copied, as writing them takes longer."""
    path, seeded = history
    copy_record(path, engine)
    return deepcopy(seeded)


@pytest.fixture(scope="session")
def url(record: Path) -> Iterator[str]:
    """The address of a dashboard of `record`, one for all tests."""
    with open_dashboard(Reader(open_database(record))) as url:
        yield url
