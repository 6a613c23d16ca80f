import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from pipelines.project.locations import HOME
from pipelines.project.project import Project
from recovery.lab import BASE
from tests.pipelines.options import recover
from tests.pipelines.project.checkpoints import record_cycle

CAPABILITIES_VERSION_3, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 0x20080522, 1, 2


def drop_privileges() -> None:
    """Root, too, may then write in this thread only where permissions allow it."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capabilities cannot be read here")
    for effective_or_permitted in (0, 1):
        sets[effective_or_permitted] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped here")


def without_privileges(run: Callable[[], None]) -> None:
    """Run it in a thread of its own: on Linux each thread has its own privileges."""
    errors = list[BaseException]()

    def target() -> None:
        try:
            drop_privileges()
            run()
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=target)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_a_project_that_may_only_be_read_is_shown(tmp_path: Path) -> None:
    """Where it was made, and after it was moved."""
    for name in ("here", "before"):
        (tmp_path / name).mkdir()
        project = Project.open(tmp_path / name, str(BASE))
        record_cycle(project, "promoted")
        project.tracker.close()
        project.engine.dispose()
    moved = (tmp_path / "before").rename(tmp_path / "moved")
    homes = [tmp_path / "here" / HOME, moved / HOME]
    files = [file for home in homes for file in (home, *home.rglob("*"))]
    for file in files:
        file.chmod(file.stat().st_mode & 0o555)
    reading = [("status",), ("runs",), ("show", "cycle:1"), ("show", "base")]
    reading += [("report", "1", "--to", str(tmp_path / "page.html"))]

    def run() -> None:
        for home in homes:
            assert not os.access(home, os.W_OK)
            for command in reading:
                shown = recover(*command, "--project", home.parent)
                assert (shown.exit_code, shown.stderr) == (0, ""), command
            refused = recover("cancel", "--project", home.parent)
            assert refused.exit_code == 1
            assert refused.stderr.startswith(f"Error: Cannot write to {home} (Permission denied).")

    try:
        without_privileges(run)
    finally:
        for file in files:
            file.chmod(file.stat().st_mode | 0o200)
