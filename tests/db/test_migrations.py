"""Up, down and up again on both databases; and the models are what the migrations make."""

from multiprocessing import get_context

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from db.engine import open_database
from db.errors import RecordError
from db.migrations import VERSION_TABLE, config, current_version, move
from db.tables import Table

REVISIONS = [script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()][::-1]


def test_every_step_goes_up_and_down(engine: Engine) -> None:
    def step(to: str) -> str | None:
        with engine.begin() as connection:
            move(connection, to)
            return current_version(connection)

    assert [step("-1") for _ in REVISIONS] == [*REVISIONS[-2::-1], None]
    assert set(inspect(engine).get_table_names()) <= {VERSION_TABLE}
    assert [step("+1") for _ in REVISIONS] == REVISIONS
    step("base")
    step("head")
    assert set(inspect(engine).get_table_names()) == {VERSION_TABLE, *Table.metadata.tables}


def test_the_models_are_what_the_migrations_make(engine: Engine) -> None:
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, Table.metadata) == []


def test_constraints_are_named_alike_in_models_and_database(engine: Engine) -> None:
    inspector = inspect(engine)
    for name, table in Table.metadata.tables.items():
        ours = {str(constraint.name) for constraint in table.constraints}
        theirs = {str(inspector.get_pk_constraint(name)["name"])}
        for kind in (inspector.get_foreign_keys, inspector.get_unique_constraints, inspector.get_check_constraints):
            theirs |= {str(constraint["name"]) for constraint in kind(name)}
        assert theirs == ours


def test_a_record_from_a_newer_release_is_refused_and_left_alone(engine: Engine, url: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(RecordError, match=r"written by a newer release .*9999.*upgrade recover"):
        open_database(url)
    with engine.begin() as connection:
        assert current_version(connection) == "9999"


def test_opening_a_record_again_changes_nothing(engine: Engine, url: str) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO projects (name, root, base, created_at) VALUES ('a', '.', 'lab', '2026-01-01 00:00:00')")
        )
    again = open_database(url)
    with again.begin() as connection:
        assert connection.execute(text("SELECT name FROM projects")).scalars().all() == ["a"]
    again.dispose()


def _open(url: str) -> None:
    open_database(url).dispose()


def test_several_processes_may_open_a_fresh_record_at_once(url: str) -> None:
    processes = [get_context("spawn").Process(target=_open, args=(url,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
