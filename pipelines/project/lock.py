"""One command at a time changes a project. The system lets go of the lock whenever its holder ends, however it ends."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from recovery.errors import RecoverError


@contextmanager
def held(home: Path, what: str) -> Iterator[None]:
    home.mkdir(parents=True, exist_ok=True)
    about = home / "lock.json"
    lock = FileLock(home / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RecoverError(f"{_holder(about)} works in this project; wait until it is done, or stop it first") from None
    try:
        about.write_text(json.dumps({"command": what, "pid": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        about.unlink(missing_ok=True)
        lock.release()


def _holder(about: Path) -> str:
    try:
        said = json.loads(about.read_text())
        return f"`{said['command']}` (process {said['pid']} on {said['host']})"
    except (OSError, ValueError, KeyError):
        return "another command"


def command_line() -> str:
    """What was typed, for whoever is told to wait."""
    return " ".join(["recover", *sys.argv[1:]])[:120]
