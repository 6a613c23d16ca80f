"""What a command says while it runs: messages, how far a long computation is, and no long silence.

Every module logs to `log`; the command line prints the messages on standard error."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from recovery.progress import Update

log = logging.getLogger("recover")

LINE_SECONDS = 20.0  # with slow steps, still less than SILENCE_SECONDS
SILENCE_SECONDS = 30.0
BAR_SECONDS = 0.5
BAR_WIDTH = 30
MIN_SHARE = 0.03  # below it nothing is estimated: of many replies that are written at once, the first says little
STEPS = "steps"  # the units of a training, which logs its steps itself


class _StandardError(logging.Handler):
    """Looks up `sys.stderr` for each message, so that a redirected stream is honoured."""

    last = 0.0  # when a message or a bar was shown there

    def emit(self, record: logging.LogRecord) -> None:
        show(f"{record.getMessage()}\n")


def show(text: str) -> None:
    """On standard error. Where that is closed or its disk is full, the text is lost: no computation ends for it.

    A signal's handler may meet a message that is half-written, which is a RuntimeError."""
    _StandardError.last = time.monotonic()
    with suppress(OSError, ValueError, RuntimeError):
        if sys.stderr is not None:  # `print` would write to standard output
            print(text, end="", file=sys.stderr, flush=True)


def print_progress() -> None:
    """One handler per process, however many commands it runs."""
    if not any(isinstance(handler, _StandardError) for handler in log.handlers):
        log.addHandler(_StandardError())
    log.setLevel(logging.INFO)


def show_progress(units: str, total: int) -> Update:
    """A listener for `recovery.progress`: on a terminal a bar, elsewhere a line now and then."""
    if units == STEPS:
        return lambda done: None
    has_bar, bar_is_shown = sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty(), False
    start_time = last = time.monotonic()

    def update(done: int) -> None:
        nonlocal last, bar_is_shown
        now = time.monotonic()
        if done >= total:
            if bar_is_shown:
                show("\r\033[K")  # erases the line
                bar_is_shown = False
        elif now - last >= (BAR_SECONDS if has_bar else LINE_SECONDS):
            last = now
            text = progress_text(units, done, total, now - start_time)
            if not has_bar:
                log.info(f"  {text}")
                return
            bar_is_shown = True
            filled = "━" * int(BAR_WIDTH * done / total)
            show(f"\r\033[K  {filled:<{BAR_WIDTH}} {text}")

    return update


def progress_text(units: str, done: int, total: int, seconds: float) -> str:
    """Such as "120 of 2,000 replies, 4.1 a second, about 8 min left"."""
    text, left = f"{done:,} of {total:,} {units}", seconds_left(done, total, seconds)
    if left is None:
        return text
    rate = done / seconds
    speed = f"{rate:.1f} a second" if rate >= 1 else f"{1 / rate:.0f} s each"
    return f"{text}, {speed}, about {duration(left)} left"


def seconds_left(done: int, total: int, seconds: float) -> float | None:
    """By the rate so far; None while too little is done."""
    return (total - done) * seconds / done if seconds > 0 and done >= max(1, MIN_SHARE * total) else None


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


class StepTimer:
    """When the next line about a training's steps is due, and how long the rest will take."""

    def __init__(self, steps: int, first: int):
        self.steps, self.first = steps, first
        self._start_time = self._last = time.monotonic()

    def is_due(self) -> bool:
        return time.monotonic() - self._last >= LINE_SECONDS

    def left(self, step: int) -> str:
        """Such as " · about 8 min left" after `step`; empty where that is under a minute."""
        self._last = time.monotonic()
        seconds = (self._last - self._start_time) / (step + 1 - self.first) * (self.steps - step - 1)
        return f" · about {duration(seconds)} left" if seconds >= 60 else ""


@contextmanager
def no_silence(describe: Callable[[], str]) -> Iterator[None]:
    """Log `describe()` whenever nothing was shown for so long."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(max(0.01, _StandardError.last + SILENCE_SECONDS - time.monotonic())):
            if time.monotonic() - _StandardError.last >= SILENCE_SECONDS:
                _StandardError.last = time.monotonic()
                log.info(describe())

    thread = threading.Thread(target=watch, name="silence", daemon=True)
    _StandardError.last = time.monotonic()
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
