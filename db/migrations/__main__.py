"""Write the next migration from the changes in `db/tables.py`. Read it before you commit it."""

import sys
import tempfile

from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from db.migrations import migrate
from db.migrations.steps import config

steps = len(list(ScriptDirectory.from_config(config()).walk_revisions()))
with tempfile.TemporaryDirectory() as folder:
    engine = create_engine(f"sqlite:///{folder}/record.db")
    migrate(engine, folder)
    with engine.begin() as connection:
        message = " ".join(sys.argv[1:]) or "change"
        command.revision(config(connection), message=message, autogenerate=True, rev_id=f"{steps + 1:04d}")
    engine.dispose()
