"""Commands on several processes: started by `--processes`, or by torchrun, whose environment variables both use.

`--processes` does not start torchrun itself, which ends with 1 whatever a command ends with, prints a traceback when a
process is lost, and passes Ctrl-C to all processes, while the first must finish its step and save.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory

from pipelines.log import log
from recovery.errors import LostProcess, RecoverError
from recovery.progress import listen

SECONDS_TO_END = 5.0  # for a process after another has ended
LONG_SECONDS_TO_END = 60.0  # for the leader, where the others have only lost it
POLL_SECONDS = 0.1

Children = list[subprocess.Popen[bytes]]


def started_together() -> bool:
    by_us_or_torchrun = "PROCESSES_MEET_AT" in os.environ or "TORCHELASTIC_RUN_ID" in os.environ
    return by_us_or_torchrun and int(os.environ.get("WORLD_SIZE", 1)) > 1


@contextmanager
def followers() -> Iterator[None]:
    """Lead the other processes of this command, if there are any; one of those follows here, and ends."""
    if not started_together():
        yield
        return
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    from recovery.distributed import join, leave
    from recovery.processes import dismiss, follow

    if os.environ["RANK"] == "0":
        join()
        try:
            yield
        except BaseException:
            leave(in_order=False)
            raise
        dismiss()
        leave()
        return
    log.setLevel(logging.ERROR)
    listen(None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the leader ends in order, and then this process does
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        join()
        follow()
        leave()
    except Exception:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(SECONDS_TO_END)  # the leader may have met the same error: then it explains it, and this one is ended
        raise
    sys.exit(0)


def _end_with_parent(parent: int) -> None:
    """No process is left behind when what started it is killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def start_processes(count: int) -> None:
    """Run this command again as several processes on this machine, and end as the first of them does.

    One of several processes, or the only one, goes on here."""
    if count == 1 or started_together():
        return
    cores = os.cpu_count() or 1
    if count > cores:
        raise RecoverError(f"This machine has {cores} processor cores, too few for {count} processes. Start fewer.")
    children: Children = []
    with TemporaryDirectory() as folder:
        environment = {
            "OMP_NUM_THREADS": str(max(1, cores // count)),
            **os.environ,
            "PROCESSES_MEET_AT": f"file://{folder}/store",
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
        }
        try:
            for rank in range(count):
                children.append(_start(environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}))
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda received, _: children[0].send_signal(received))
            sys.exit(_wait(children))
        finally:
            for child in children:
                child.kill()
                child.wait()


def _start(environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Only the first process reads, and writes a result. In a session of its own no terminal's Ctrl-C reaches it."""
    first = environment["RANK"] == "0"
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "pipelines.cli", *sys.argv[1:]],
        env=environment,
        stdin=None if first else subprocess.DEVNULL,
        stdout=None if first else subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait(children: Children) -> int:
    """Wait for the first process; raise if a process is killed, which ends the others."""
    while children[0].poll() is None:
        if any(child.poll() for child in children) and not _ends(children[0], SECONDS_TO_END / 2):
            codes = {i: child.returncode for i, child in enumerate(children) if child.poll()}
            killed = next((i for i, code in codes.items() if code < 0), None)
            if killed is not None:
                raise _lost(killed, children)
            if failed := [i for i, code in codes.items() if code != LostProcess.EXIT_CODE]:
                raise RecoverError(f"Process {failed[0] + 1} of {len(children)} failed. Its error stands above.")
            if not _ends(children[0], LONG_SECONDS_TO_END):
                raise _lost(0, children)
        time.sleep(POLL_SECONDS)
    if children[0].returncode < 0:
        raise _lost(0, children)
    for child in children:
        _ends(child, SECONDS_TO_END / 2)
    return children[0].returncode


def _ends(child: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether a process ends soon by itself, without waiting for those that have ended."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
    return child.poll() is not None


def _lost(index: int, children: Children) -> RecoverError:
    number = -(children[index].returncode or 0)
    name = signal.Signals(number).name if number in signal.valid_signals() else "no longer connected"
    return RecoverError(
        f"Process {index + 1} of {len(children)} was lost ({name}), so the others were ended, too. Go on from the last "
        "saved state with `recover resume`."
    )
