"""Ctrl-C, and the polite end a scheduler asks for: what is being computed is finished and saved first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Wish:
    """Whether someone wants this to end. A second Ctrl-C does not wait."""

    wanted = False

    def __call__(self, *_: Any) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True


@contextmanager
def listening() -> Iterator[Wish]:
    wish = Wish()
    try:
        before = {number: signal.signal(number, wish) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread, which alone hears signals
        yield wish
        return
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
