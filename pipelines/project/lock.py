"""The project lock: one command at a time changes a project. The system releases it when the process ends."""

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
def project_lock(home: Path, command: str) -> Iterator[None]:
    """Hold the lock; raises RecoverError, with the command that holds it, if it is taken."""
    home.mkdir(parents=True, exist_ok=True)
    holder_file = home / "lock.json"
    lock = FileLock(home / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RecoverError(
            f"Another command is running in this project{_holder(holder_file)}. Wait until it ends, or stop it first."
        ) from None
    try:
        holder_file.write_text(json.dumps({"command": command, "pid": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        holder_file.unlink(missing_ok=True)
        lock.release()


def _holder(file: Path) -> str:
    try:
        holder = json.loads(file.read_text())
        return f": `{holder['command']}` (process {holder['pid']} on {holder['host']})"
    except (OSError, ValueError, KeyError):
        return ""


def command_line() -> str:
    """The command of this process, for the message that others get while it holds the lock."""
    return " ".join(["recover", *sys.argv[1:]])[:120]
