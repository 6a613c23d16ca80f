"""Progress of long computations: they report how far they are, and whoever started them decides how that is shown.

`listen(listener)` sets the listener of the process. Without one, nothing is shown.
"""

from collections.abc import Callable

Update = Callable[[int], None]  # takes the number of units that are done
Listener = Callable[[str, int], Update]  # takes the name of the units and their total number

_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    global _listener
    _listener = listener


def track(units: str, total: int) -> Update:
    """Begin a computation over `total` units, such as "replies"."""
    return _listener(units, total) if _listener is not None else _ignore


def _ignore(done: int) -> None:
    pass
