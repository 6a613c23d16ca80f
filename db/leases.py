"""Leases: where several machines share a record, one process at a time may write to a project.

A lease is one row for each project, with a token that every new holder raises by one. Each transaction of the holder
first renews the row that still has its token. Where there is none, another process has taken the lease over, and the
transaction writes nothing: so a machine that was only cut off can do no harm when it returns. All times are the
database's, since the clocks of two machines may differ.
"""

import os
import socket
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Connection, Engine, Table, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from db import tables
from db.database_time import database_time, lease_seconds
from db.engine import insert_into, reason, write_engine
from db.errors import RecordError

LEASES = cast(Table, tables.Lease.__table__)


class LeaseHeld(RecordError):
    """Another process holds the lease, and may be alive."""


class LeaseLost(RecordError):
    """Another process has taken the lease over; this one writes nothing more."""


@dataclass
class Lease:
    """This process's lease of a project, with what others are shown of it: its job, and how far that is."""

    project: int
    token: int
    seconds: float
    job: str | None = None
    progress: dict[str, Any] | None = None
    lost: LeaseLost | None = None

    def renew(self, connection: Connection | Session) -> None:
        """Renew the lease in a transaction that writes, before anything else; nobody can take it until the transaction
        ends."""
        self.raise_if_lost()
        values = {"expires_at": database_time(self.seconds), "job": self.job, "progress": self.progress}
        if not self._update(connection, values):
            self.lost = LeaseLost(_lost_message(connection.execute(_holder_query(self.project)).first()))
            raise self.lost

    def raise_if_lost(self) -> None:
        """Raise LeaseLost if the lease is known to be lost."""
        if self.lost is not None:
            raise self.lost

    def release(self, connection: Connection | Session) -> None:
        """Give the lease up, so that others need not wait until it expires."""
        self._update(connection, {"expires_at": None})

    def _update(self, connection: Connection | Session, values: dict[str, Any]) -> int:
        own = update(LEASES).where(LEASES.c.project_id == self.project, LEASES.c.token == self.token)
        return int(cast(Any, connection.execute(own.values(values))).rowcount)


def take_lease(engine: Engine, project: int, root: Path, command: str, last_token: int | None = None) -> Lease:
    """Take the lease of a project; raises LeaseHeld where another process has one that has not expired.

    `last_token` is that of the folder's last lease. The caller holds the folder's lock, so a lease with this token was
    left by a command that is dead. Host and path are not enough to know that: another machine may have the same."""
    host, folder, seconds = socket.gethostname(), str(root), lease_seconds()
    lease = LEASES.c
    values = {
        "host": host, "root": folder, "pid": os.getpid(), "command": command, "job": None, "progress": None,
        "taken_at": database_time(), "expires_at": database_time(seconds),
    }  # fmt: skip
    is_expired = lease.expires_at.is_(None) | (lease.expires_at <= database_time())
    left_by_this_folder = (lease.host == host) & (lease.root == folder) & (lease.token == (last_token or 0))
    taken = (
        insert_into(engine, LEASES)
        .values(project_id=project, token=1, **values)
        .on_conflict_do_update(
            index_elements=["project_id"],
            set_={**values, "token": lease.token + 1},
            where=is_expired | left_by_this_folder,
        )
        .returning(lease.token)
    )
    try:
        with write_engine(engine).begin() as connection:
            token = connection.execute(taken).scalar()
            if token is None:
                raise LeaseHeld(_held_message(connection.execute(_holder_query(project)).one()))
    except SQLAlchemyError as error:
        raise RecordError(
            f"The record could not store the lease of the project: {reason(error)}. Run `recover doctor` to check it."
        ) from error
    return Lease(project, token, seconds)


def _holder_query(project: int) -> Any:
    return select(LEASES, database_time().label("now")).where(LEASES.c.project_id == project)


def _held_message(row: Any) -> str:
    left = max(round((row.expires_at - row.now).total_seconds()), 1)
    return (
        f"Another command works on this project: {_holder_label(row)}. Its lease lasts until "
        f"{_clock(row.expires_at)}, in {left} s, and is renewed while it runs. Wait until it ends, or stop it with "
        "`recover cancel`; if its machine is lost, try again after that time."
    )


def _lost_message(row: Any) -> str:
    if row is None:
        return "The record no longer has the lease of this command, which ends here and writes nothing more."
    return (
        f"Another command has taken over this project: {_holder_label(row)}, at {_clock(row.taken_at)}; this "
        "one, whose lease had expired, ends here and writes nothing more."
    )


def _holder_label(row: Any) -> str:
    return f"`{row.command}` (process {row.pid} on {row.host})"


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S} UTC"
