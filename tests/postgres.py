"""The fixture of a PostgreSQL server, for tests of every package."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest


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


@pytest.fixture
def postgres_url(postgres_cluster: Path) -> Iterator[str]:
    """The address of an empty database."""
    from tests.db.postgres import fresh_database

    with fresh_database(postgres_cluster) as address:
        yield address


def _missing(problem: str) -> NoReturn:
    if os.environ.get("RECOVER_REQUIRE_POSTGRES") == "1":
        pytest.fail(f"RECOVER_REQUIRE_POSTGRES=1, but {problem}")
    pytest.skip(problem)
