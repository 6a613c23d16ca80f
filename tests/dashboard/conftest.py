from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dashboard.server.serve import opened
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
    """`serving(reader)`: the dashboard's address. Ask for it before `visit`, that pages close before their server."""
    with ExitStack() as stack:
        yield lambda reader, **how: stack.enter_context(opened(reader, **how))


@pytest.fixture
def told(tmp_path: Path) -> Iterator[tuple[Tracker, Reader]]:
    """A record to tell more to, and its reader."""
    engine = open_database(tmp_path / "record.db")
    with Tracker(engine) as tracker:
        yield tracker, Reader(engine)
    engine.dispose()


@pytest.fixture
def url(serving: Callable[..., str], reader: Reader) -> str:
    return serving(reader)
