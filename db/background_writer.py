"""Writing what a run says along the way, off its path: a queue, and a thread that empties it in batches.

Nothing here ever raises into training. While the database cannot take rows they wait in memory and are tried again;
rows that it will never take (of a run it does not know, say) are dropped with a warning.
"""

import atexit
import logging
import queue
import threading
import time
from collections import defaultdict
from typing import Any, NamedTuple

from sqlalchemy import Engine, Insert, Table, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, IntegrityError

from db.engine import reason, writing
from db.tables import Run
from db.types import now

log = logging.getLogger(__name__)

BATCH = 2_000
"""Entries in one transaction at most: other writers wait meanwhile."""


class Entry(NamedTuple):
    """Rows that belong together (a step's numbers): written all at once or not at all."""

    run: int
    table: Table
    rows: list[dict[str, Any]]


class BackgroundWriter:
    def __init__(self, engine: Engine, pause: float = 0.5, heartbeat: float = 10.0) -> None:
        self._engine = writing(engine)
        self._pause, self._heartbeat = pause, heartbeat
        self._queue: queue.SimpleQueue[Entry] = queue.SimpleQueue()
        self._waiting: list[Entry] = []
        self._alive: set[int] = set()
        self._last_beat = time.monotonic()
        self._failing = False
        self._draining = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="record", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def put(self, entry: Entry) -> None:
        self._queue.put(entry)

    def keep_alive(self, run: int) -> None:
        """Say every few seconds that this run lives, even while it has nothing else to say."""
        self._alive.add(run)

    def let_go(self, run: int) -> None:
        self._alive.discard(run)

    def flush(self) -> bool:
        """Write what was put so far; False when the database cannot take it now (it is kept)."""
        with self._draining:
            return self._drain()

    def close(self) -> None:
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        atexit.unregister(self.close)
        if not self.flush():
            log.warning("The record could not take %d entries before the end; they are lost.", len(self._waiting))

    def _work(self) -> None:
        while not self._stop.wait(self._pause):
            self.flush()

    def _drain(self) -> bool:
        while not self._queue.empty():
            self._waiting.append(self._queue.get())
        size = BATCH
        while self._waiting or self._beat_is_due():
            batch = self._waiting[:size]
            try:
                self._write(batch)
            except (IntegrityError, DataError) as refused:
                if len(batch) > 1:  # narrow it down to the entry that cannot be stored
                    size = len(batch) // 2
                    continue
                size = BATCH
                _warn_dropped(batch, refused)
            except Exception as failure:
                self._report(failure)
                return False
            del self._waiting[: len(batch)]
        if self._failing:
            self._failing = False
            log.info("The record takes entries again; nothing was lost.")
        return True

    def _beat_is_due(self) -> bool:
        return bool(self._alive) and time.monotonic() - self._last_beat >= self._heartbeat

    def _write(self, batch: list[Entry]) -> None:
        rows: dict[Table, list[dict[str, Any]]] = defaultdict(list)
        for entry in batch:
            rows[entry.table] += entry.rows
        runs = self._alive | {entry.run for entry in batch}
        with self._engine.begin() as connection:
            for table, values in rows.items():
                connection.execute(upsert(self._engine, table), values)
            connection.execute(update(Run).where(Run.id.in_(runs)).values(heartbeat_at=now()))
        self._last_beat = time.monotonic()

    def _report(self, failure: Exception) -> None:
        if not self._failing:
            self._failing = True
            waiting = f"{len(self._waiting)} entries wait in memory and are tried again"
            log.warning("The record cannot be written to now (%s); training goes on, %s.", reason(failure), waiting)


def upsert(engine: Engine, table: Table) -> Insert:
    """Insert, or overwrite the row of the same key: what a resumed run says again replaces what it said before."""
    make = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert
    statement: Any = make(table)
    key = [column.name for column in table.primary_key]
    rest = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in key}
    if key == ["id"]:
        return statement
    return statement.on_conflict_do_update(index_elements=key, set_=rest)


def _warn_dropped(batch: list[Entry], refused: Exception) -> None:
    for entry in batch:
        log.warning("The record refused %s of run %d (%s); dropped.", entry.table.name, entry.run, reason(refused))
