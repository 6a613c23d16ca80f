"""PostgreSQL's advisory lock: one command at a time works on a project, from whatever folder or machine.

The server releases it when the connection ends, so a killed process leaves nothing behind. The connection is named
after its process, which every client of the server can see: so the others know who holds the lock.
"""

import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from db import RecordError
from db.engine import reason

TAKE = text("SELECT pg_try_advisory_lock((CAST(:high AS bigint) << 32) | :low)")
SET_NAME = text("SELECT set_config('application_name', :name, false)")
KEEP = text("SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'")
HOLDER = text("""
    SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND datname = current_database()
    AND CAST(classid AS bigint) = :high AND CAST(objid AS bigint) = :low AND database = datid
""")


@dataclass(frozen=True)
class LockHolder:
    """The command that holds the lock."""

    command: str  # its beginning where the server tells it, which cuts the name of a connection after 63 bytes
    pid: int
    host: str
    job: str | None = None  # the id of the job that it runs
    progress: dict[str, Any] | None = None  # stage, units, done, total, seconds_left

    def __str__(self) -> str:
        return f"`{self.command}` (process {self.pid} on {self.host})"


@contextmanager
def advisory_lock(engine: Engine, project: str, command: str) -> Iterator[bool]:
    """Whether this process has the lock, which it keeps until the block ends."""
    try:
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()  # no other transaction gets it, and it is closed at the end
        connection.execute(SET_NAME, {"name": f"{os.getpid()} {socket.gethostname()} {command}"})
        connection.execute(KEEP)
        is_taken = bool(connection.scalar(TAKE, _key(project)))
    except SQLAlchemyError as error:
        raise RecordError(
            f"The record could not lock the project: {reason(error)}. Run `recover doctor` to check it."
        ) from error
    with connection:
        yield is_taken


def lock_holder(engine: Engine, project: str) -> LockHolder | None:
    """The process that has the lock of the project, if one has."""
    try:
        with engine.connect() as connection:
            name = connection.scalar(HOLDER, _key(project))
    except SQLAlchemyError as error:
        raise RecordError(f"The record cannot be read: {reason(error)}. Run `recover doctor` to check it.") from error
    if name is None:
        return None
    pid, host, command = f"{name}  ".split(" ", 2)
    return LockHolder(command.strip(), int(pid), host)


def _key(project: str) -> dict[str, int]:
    """The two halves of the lock's number."""
    digest = hashlib.sha256(f"recover {project}".encode()).digest()
    return {"high": int.from_bytes(digest[:4]), "low": int.from_bytes(digest[4:8])}
