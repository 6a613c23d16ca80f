"""No long silence: where nothing was logged for half a minute, a line says what is still going on.

Most long computations report their progress themselves (`pipelines.progress`). This is for all others: starting an
engine, one long step, reading weights over a network."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pipelines.log import log
from recovery.progress import Update, also_listen

SILENCE_SECONDS = 30.0


class _LastMessage(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.at = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        self.at = time.monotonic()

    def listener(self, units: str, total: int) -> Update:
        """On a terminal a bar shows the progress, so it is not silent."""
        is_shown = sys.stderr.isatty()

        def update(done: int) -> None:
            if is_shown:
                self.at = time.monotonic()

        return update


@contextmanager
def no_silence(describe: Callable[[], str], seconds: float = SILENCE_SECONDS) -> Iterator[None]:
    """Log `describe()` whenever nothing was logged for so long."""
    last, ended = _LastMessage(), threading.Event()

    def watch() -> None:
        while not ended.wait(max(0.01, last.at + seconds - time.monotonic())):
            if time.monotonic() - last.at >= seconds:
                last.at = time.monotonic()
                log.info(describe())

    thread = threading.Thread(target=watch, name="silence", daemon=True)
    log.addHandler(last)
    thread.start()
    try:
        with also_listen(last.listener):
            yield
    finally:
        ended.set()
        thread.join()
        log.removeHandler(last)
