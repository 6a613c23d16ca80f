"""A disk that takes only small files."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(largest: int) -> Iterator[None]:
    """No file can have more bytes, and all libraries meet the system's own error."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
