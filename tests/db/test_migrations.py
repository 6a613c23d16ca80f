import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from db import RecordError
from db.engine import health, open_database
from db.migrations import VERSION_TABLE, current_version, newest
from db.migrations.steps import config
from db.tables import Table


def test_the_migrations_produce_the_declared_tables(engine: Engine) -> None:
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, Table.metadata) == []
    assert set(inspect(engine).get_table_names()) == {VERSION_TABLE, *Table.metadata.tables}


def test_constraints_have_the_same_names_in_models_and_database(engine: Engine) -> None:
    inspector = inspect(engine)
    for name, table in Table.metadata.tables.items():
        declared = {str(constraint.name) for constraint in table.constraints}
        existing = {str(inspector.get_pk_constraint(name)["name"])}
        for kind in (inspector.get_foreign_keys, inspector.get_unique_constraints, inspector.get_check_constraints):
            existing |= {str(constraint["name"]) for constraint in kind(name)}
        assert existing == declared


def test_a_record_of_a_newer_release_is_refused_and_unchanged(engine: Engine, url: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(RecordError, match=r"written by a newer release .*9999.*Upgrade recover"):
        open_database(url)
    with engine.begin() as connection:
        assert current_version(connection) == "9999"
    assert not health(url).supported


def test_the_newest_version_comes_from_the_file_names() -> None:
    assert newest() == ScriptDirectory.from_config(config()).get_current_head()


def test_the_first_migration_is_written_out_before_a_second_one_follows() -> None:
    """What it creates must not change once records exist that a later migration starts from."""
    first, *later = sorted(Path(ScriptDirectory.from_config(config()).versions).glob("[0-9]*_*.py"))
    assert not later or "metadata" not in first.read_text(), "write it out first: see 'A table' in CONTRIBUTING.md"


def test_a_record_of_this_release_opens_without_alembic(tmp_path: Path) -> None:
    record = tmp_path / "record.db"
    open_database(record).dispose()
    script = f"import sys; from db.engine import open_database; open_database({str(record)!r}); "
    result = subprocess.run(
        [sys.executable, "-c", script + "print('alembic' in sys.modules)"], capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "False", result.stderr
