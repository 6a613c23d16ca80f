from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dashboard.server.serve import open_dashboard
from db.engine import open_database
from db.queries import Reader
from db.tracker import Tracker
from tests.db.seeded import seeded_database


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
def writable_record(tmp_path: Path) -> Iterator[tuple[Tracker, Reader]]:
    """The tracker and the reader of an empty record."""
    engine = open_database(tmp_path / "record.db")
    with Tracker(engine) as tracker:
        yield tracker, Reader(engine)
    engine.dispose()


@pytest.fixture
def url(serving: Callable[..., str], reader: Reader) -> str:
    return serving(reader)
