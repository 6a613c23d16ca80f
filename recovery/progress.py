"""Progress of long computations: they report how far they are, and whoever started them decides how that is shown.

`listen(listener)` sets the listener of the process; `also_listen` adds another one for a while. Without any, nothing
is shown.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Update = Callable[[int], None]  # takes the number of units that are done
Listener = Callable[[str, int], Update]  # takes the name of the units and their total number

_listeners: list[Listener] = []


def listen(listener: Listener | None) -> None:
    _listeners[:] = [listener] if listener is not None else []


@contextmanager
def also_listen(listener: Listener) -> Iterator[None]:
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def track(units: str, total: int) -> Update:
    """Begin a computation over `total` units, such as "replies"."""
    updates = [listener(units, total) for listener in _listeners]

    def update(done: int) -> None:
        for report in updates:
            report(done)

    return update
