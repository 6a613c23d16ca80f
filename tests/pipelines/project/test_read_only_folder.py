import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.project.locations import HOME
from pipelines.project.project import Project
from recovery.lab import BASE
from tests.pipelines.project.checkpoints import record_cycle

COMMANDS = """
import sys
from tests.pipelines.options import recover

page, *folders = sys.argv[1:]
reading = [("status",), ("runs",), ("show", "cycle:1"), ("show", "base"), ("report", "1", "--to", page)]
for folder in folders:
    for command in (*reading, ("cancel",)):
        ended = recover(*command, "--project", folder)
        print(command[0], ended.exit_code, ended.stderr.strip())
"""
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def without_privileges() -> None:
    """Root, too, may then write only where permissions allow it."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH) if os.geteuid() == 0 else ():
        if ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError("capabilities cannot be dropped here")


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
    command = [sys.executable, "-c", COMMANDS, str(tmp_path / "page.html"), *(str(home.parent) for home in homes)]
    try:
        shown = subprocess.run(command, preexec_fn=without_privileges, capture_output=True, text=True, check=True)
    finally:
        for file in files:
            file.chmod(file.stat().st_mode | 0o200)
    lines = shown.stdout.splitlines()
    for home, (*read, cancelled) in zip(homes, (lines[:6], lines[6:]), strict=True):
        assert read == ["status 0 ", "runs 0 ", "show 0 ", "show 0 ", "report 0 "]
        assert cancelled.startswith(f"cancel 1 Error: Cannot write to {home} (Permission denied).")
