"""Inspecting a record without changing it."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from db import RecordError
from db.engine import health, open_database


def test_health_of_an_open_record_has_server_and_version(url: str, engine: Engine) -> None:
    state = health(url)
    assert state.server.startswith({"sqlite": "SQLite 3.", "postgresql": "PostgreSQL "}[engine.dialect.name])
    assert state.version is not None
    assert state.supported


def test_health_creates_nothing(tmp_path: Path) -> None:
    state = health(tmp_path / "none" / "record.db")
    assert (state.version, state.supported) == (None, True)
    assert not list(tmp_path.iterdir())


def test_a_record_of_a_newer_release_is_not_supported(tmp_path: Path) -> None:
    open_database(tmp_path / "record.db").dispose()
    later = create_engine(f"sqlite:///{tmp_path}/record.db")
    with later.begin() as connection:
        connection.execute(text("UPDATE recover_version SET version_num = '9999'"))
    later.dispose()
    assert not health(tmp_path / "record.db").supported


def test_the_message_for_an_unreachable_record_hides_the_password() -> None:
    with pytest.raises(RecordError, match=r"127\.0\.0\.1:1/") as caught:
        health("postgresql://ada:secret@127.0.0.1:1/record")
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "record.db").write_text("Dear diary, " * 100)
    with pytest.raises(RecordError, match="not a database"):
        health(tmp_path / "record.db")
