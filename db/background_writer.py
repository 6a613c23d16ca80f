"""Write a run's telemetry in the background: a queue, and a thread that empties it in batches.

Nothing here raises into training. While the database is unavailable, rows wait in memory and are retried; rows that the
database refuses (of an unknown run, say) are dropped with a warning.
"""

import atexit
import logging
import queue
import threading
import time
from collections import defaultdict
from typing import Any, NamedTuple, cast

from sqlalchemy import Engine, Insert, Table, update
from sqlalchemy.exc import DataError, IntegrityError

from db.column_types import database_time
from db.engine import insert_into, reason, write_engine
from db.tables import Run

log = logging.getLogger(__name__)

MAX_BATCH = 2_000  # entries in one transaction; other writers wait meanwhile


class Entry(NamedTuple):
    """Rows that belong together (a step's metrics): written in one transaction or not at all."""

    run: int
    table: Table
    rows: list[dict[str, Any]]


class BackgroundWriter:
    """Write queued entries every `pause` seconds, and a heartbeat of every live run every `heartbeat` seconds."""

    def __init__(self, engine: Engine, pause: float = 0.5, heartbeat: float = 10.0) -> None:
        self._engine = write_engine(engine)
        self._pause, self._heartbeat = pause, heartbeat
        self._queue: queue.SimpleQueue[Entry] = queue.SimpleQueue()
        self._pending: list[Entry] = []
        self._live_runs: set[int] = set()
        self._last_heartbeat = time.monotonic()
        self._failing = False
        self._drain_lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write_periodically, name="record", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def put(self, entry: Entry) -> None:
        self._queue.put(entry)

    def start_heartbeat(self, run: int) -> None:
        """Update the run's heartbeat from now on, even while it writes nothing else."""
        self._live_runs.add(run)

    def stop_heartbeat(self, run: int) -> None:
        self._live_runs.discard(run)

    def flush(self) -> bool:
        """Write all queued entries; False when the database is unavailable (the entries stay in memory)."""
        with self._drain_lock:
            return self._drain()

    def close(self) -> None:
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        atexit.unregister(self.close)
        if not self.flush():
            log.warning("The record could not store %d entries before the end; they are lost", len(self._pending))

    def _write_periodically(self) -> None:
        while not self._stop.wait(self._pause):
            self.flush()

    def _drain(self) -> bool:
        while not self._queue.empty():
            self._pending.append(self._queue.get())
        size = MAX_BATCH
        while self._pending or self._heartbeat_is_due():
            batch = self._pending[:size]
            try:
                self._write(batch)
            except (IntegrityError, DataError) as error:
                if len(batch) > 1:  # find the entry that cannot be stored
                    size = len(batch) // 2
                    continue
                size = MAX_BATCH
                _warn_dropped(batch, error)
            except Exception as failure:
                self._warn_once(failure)
                return False
            del self._pending[: len(batch)]
        if self._failing:
            self._failing = False
            log.info("The record accepts entries again; nothing was lost")
        return True

    def _heartbeat_is_due(self) -> bool:
        return bool(self._live_runs) and time.monotonic() - self._last_heartbeat >= self._heartbeat

    def _write(self, batch: list[Entry]) -> None:
        rows: dict[Table, list[dict[str, Any]]] = defaultdict(list)
        for entry in batch:
            rows[entry.table] += entry.rows
        runs = self._live_runs | {entry.run for entry in batch}
        with self._engine.begin() as connection:
            for table, values in rows.items():
                connection.execute(upsert(self._engine, table), values)
            connection.execute(update(Run).where(Run.id.in_(runs)).values(heartbeat_at=database_time()))
        self._last_heartbeat = time.monotonic()

    def _warn_once(self, failure: Exception) -> None:
        if not self._failing:
            self._failing = True
            log.warning(
                "The record is unavailable (%s); training continues, %d entries wait in memory and are retried",
                reason(failure),
                len(self._pending),
            )


def upsert(engine: Engine, table: Table) -> Insert:
    """Insert, or overwrite the row with the same key: a resumed run repeats steps that it wrote before."""
    statement = insert_into(engine, table)
    key = [column.name for column in table.primary_key]
    others = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in key}
    return cast(Insert, statement.on_conflict_do_update(index_elements=key, set_=others))


def _warn_dropped(batch: list[Entry], error: Exception) -> None:
    for entry in batch:
        log.warning("The record refused %s of run %d (%s); dropped", entry.table.name, entry.run, reason(error))
