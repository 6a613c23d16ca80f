import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import Engine, text

from db import RecordError
from db.engine import health, open_database, write_engine


def test_sqlite_is_set_up_for_several_writers(tmp_path: Path) -> None:
    engine = open_database(tmp_path / "new" / "folder" / "record.db")
    with engine.begin() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        }
    engine.dispose()
    assert pragmas == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 1, "busy_timeout": 30_000}


def test_a_write_transaction_takes_the_lock_at_its_start(tmp_path: Path) -> None:
    """Meanwhile readers can still read, and see what was committed."""
    engine = open_database(tmp_path / "record.db")
    insert = text("INSERT INTO projects (name, root, base, created_at) VALUES ('a', '.', 'lab', '2026-01-01')")
    with write_engine(engine).begin() as writer:
        writer.execute(insert)
        with engine.begin() as other:
            assert other.execute(text("SELECT count(*) FROM projects")).scalar() == 0
            other.exec_driver_sql("PRAGMA busy_timeout = 1")
            with pytest.raises(Exception, match="locked"):
                other.execute(insert)
    engine.dispose()


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("mysql://localhost/record", "SQLite or PostgreSQL"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("://", "not a URL"),
        ("postgresql://user:secret@host:54x2/name", "not a URL"),
        ("postgresql://ada:secret@localhost:1/record", "Cannot open the record"),
        ("postgresql://localhost:1/record?user=ada&password=secret", "Cannot open the record"),
        ("/dev/null/record.db", "Cannot open the record"),
        ("{tmp_path}", "Cannot open the record"),
        ("{tmp_path}/notes.txt", "not a database"),
    ],
)
def test_a_record_that_cannot_be_opened_gives_one_line(address: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Not a database, whatever its name. " * 50)
    with pytest.raises(RecordError, match=advice) as caught:
        open_database(address.format(tmp_path=tmp_path))
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_health_of_an_open_record_has_server_and_version(url: str, engine: Engine) -> None:
    state = health(url)
    assert state.server.startswith({"sqlite": "SQLite 3.", "postgresql": "PostgreSQL "}[engine.dialect.name])
    assert state.version is not None
    assert state.supported


def test_a_full_disk_is_the_reason_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "record.db").write_text("what SQLite cannot read, here in place of what it cannot write")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=4096))
    with pytest.raises(RecordError, match=r"Its disk is full: .* then `recover gc` can free more"):
        open_database(tmp_path / "record.db")


def test_health_creates_nothing(tmp_path: Path) -> None:
    state = health(tmp_path / "none" / "record.db")
    assert (state.version, state.supported) == (None, True)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "record.db").write_text("Dear diary, " * 100)
    with pytest.raises(RecordError, match="not a database"):
        health(tmp_path / "record.db")
