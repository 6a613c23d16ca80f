"""A command on several processes ends as its first process does; when one is lost, all end, with one sentence."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.cli import processes
from pipelines.cli.processes import _wait, started_together
from recovery.errors import LostProcess, RecoverError
from tests.pipelines.options import recover


def child(code: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", f"import os, sys, time; {code}"])


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SECONDS_TO_END", 0.4)
    monkeypatch.setattr(processes, "LONG_SECONDS_TO_END", 2.0)


@pytest.mark.parametrize(
    ("leader", "follower", "code"),
    [
        *((f"time.sleep(0.2); sys.exit({code})", "time.sleep(30)", code) for code in (0, 3, 130)),
        ("time.sleep(0.5)", "sys.exit(0)", 0),  # it has ended in order, which ends nothing
        # The leader was interrupted and takes long to end: the follower has lost it.
        ("time.sleep(1); sys.exit(130)", f"sys.exit({LostProcess.EXIT_CODE})", 130),
    ],
)
def test_the_exit_code_is_the_leaders(leader: str, follower: str, code: int) -> None:
    assert _wait([child(leader), child(follower)]) == code


def test_a_process_that_fails_alone_is_named() -> None:
    """It has written its error to standard error; the first one, which is ended, writes no JSON any more."""
    with pytest.raises(RecoverError, match=r"Process 2 of 2 failed\. Its error stands above\."):
        _wait([child("time.sleep(30)"), child("sys.exit(1)")])


SLEEPS, LOSES_ITS_CONNECTION = "time.sleep(30)", f"sys.exit({LostProcess.EXIT_CODE})"


@pytest.mark.parametrize(
    ("codes", "lost"), [([SLEEPS, SLEEPS], 0), ([SLEEPS, SLEEPS], 1), ([SLEEPS, LOSES_ITS_CONNECTION, SLEEPS], 2)]
)
def test_the_lost_process_is_named_and_not_one_that_only_lost_its_connection(codes: list[str], lost: int) -> None:
    children = [child(code) for code in codes]
    children[lost].send_signal(signal.SIGKILL)
    process = rf"Process {lost + 1} of {len(codes)} was lost \(SIGKILL\), so the others were ended, too"
    with pytest.raises(RecoverError, match=rf"{process}. Go on from .*`recover resume`"):
        _wait(children)


def test_variables_of_other_programs_start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not started_together()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert started_together()


@pytest.mark.parametrize(("count", "code", "sentence"), [(0, 2, "0 is not in the range"), (999, 1, "Start fewer.")])
def test_an_impossible_number_of_processes_starts_nothing(tmp_path: Path, count: int, code: int, sentence: str) -> None:
    completed = recover("distill", "--processes", count, "--project", tmp_path / "project")
    assert (completed.exit_code, sentence in completed.stderr) == (code, True), completed.stderr
    assert not list(tmp_path.iterdir())
