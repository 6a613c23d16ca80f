"""Progress messages: every module logs to `log`; the command line prints them on standard error."""

import logging
import sys

log = logging.getLogger("recover")


class _StandardError(logging.Handler):
    """Looks up `sys.stderr` for each message, so that a redirected stream is honoured."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr, flush=True)


def print_progress() -> None:
    """One handler per process, however many commands it runs."""
    if not any(isinstance(handler, _StandardError) for handler in log.handlers):
        log.addHandler(_StandardError())
    log.setLevel(logging.INFO)
