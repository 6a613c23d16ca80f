"""Looking at a record without touching it."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from db.engine import open_database
from db.errors import RecordError
from db.health import health


def test_an_open_record_tells_its_server_and_version(url: str, engine: Engine) -> None:
    found = health(url)
    assert found.server.startswith({"sqlite": "SQLite 3.", "postgresql": "PostgreSQL "}[engine.dialect.name])
    assert found.version is not None
    assert found.known


def test_looking_creates_nothing(tmp_path: Path) -> None:
    found = health(tmp_path / "none" / "record.db")
    assert (found.version, found.known) == (None, True)
    assert not list(tmp_path.iterdir())


def test_a_record_of_a_newer_release_is_not_known(tmp_path: Path) -> None:
    open_database(tmp_path / "record.db").dispose()
    later = create_engine(f"sqlite:///{tmp_path}/record.db")
    with later.begin() as connection:
        connection.execute(text("UPDATE recover_version SET version_num = '9999'"))
    later.dispose()
    assert not health(tmp_path / "record.db").known


def test_what_cannot_be_reached_is_said_without_the_password() -> None:
    with pytest.raises(RecordError, match=r"127\.0\.0\.1:1/") as refused:
        health("postgresql://ada:secret@127.0.0.1:1/record")
    assert "secret" not in str(refused.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "record.db").write_text("Dear diary, " * 100)
    with pytest.raises(RecordError, match="not a database"):
        health(tmp_path / "record.db")
