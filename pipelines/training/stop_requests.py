"""Ctrl-C and SIGTERM during training: the current step is finished and saved first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class StopRequests:
    """Signal handler: the first request sets `stop`, a second one interrupts at once."""

    stop = False

    def __call__(self, *_: Any) -> None:
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True


@contextmanager
def stop_requests() -> Iterator[StopRequests]:
    requests = StopRequests()
    try:
        handlers = {number: signal.signal(number, requests) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # only the main thread can handle signals
        yield requests
        return
    try:
        yield requests
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
