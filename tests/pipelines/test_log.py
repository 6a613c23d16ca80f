import io
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import fail
from pipelines.log import StepTimer, duration, log, no_silence, print_progress, progress_text, show_progress
from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.progress import listen, track
from tests.models import tiny_student


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_every_twenty_seconds(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    update = show_progress("replies", 200)
    for done in range(1, 201):
        clock[0] += 1
        update(done)
    assert [r.getMessage() for r in caplog.records] == [
        f"  {n} of 200 replies, 1.0 a second, about {duration(200 - n)} left" for n in range(20, 200, 20)
    ]


def test_a_terminal_gets_a_bar_that_disappears(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal: Any = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    update = show_progress("replies", 4)
    for done in range(1, 5):
        clock[0] += 1
        update(done)
    assert "2 of 4 replies" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\033[K")


class LostTerminal(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError

    def isatty(self) -> bool:
        return True


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [LostTerminal(), closed(), None], ids=["broken", "closed", "none"])
def test_no_computation_ends_because_standard_error_is_lost(
    stream: Any, clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    print_progress()
    log.info("step 1")
    update = show_progress("replies", 40)
    for done in range(1, 41):
        clock[0] += 1
        update(done)
    with pytest.raises(SystemExit, match="130"):
        fail("Interrupted.", 130)
    assert capsys.readouterr().out == ""


def test_texts() -> None:
    assert progress_text("replies", 0, 2000, 1) == "0 of 2,000 replies"
    assert progress_text("replies", 1, 300, 45) == "1 of 300 replies"
    assert progress_text("replies", 100, 2000, 1000) == "100 of 2,000 replies, 10 s each, about 5.3 h left"
    assert duration(89) == "89 s"
    assert duration(600) == "10 min"


def test_the_time_left_of_a_training(clock: list[float]) -> None:
    timer = StepTimer(steps=60, first=10)
    assert not timer.is_due()
    clock[0] = 100
    assert timer.is_due()
    assert timer.left(19) == " · about 7 min left"
    assert not timer.is_due()
    assert timer.left(58) == ""


def test_an_engine_reports_every_reply(tmp_path: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    listen(lambda units, total: lambda done: reports.append((units, done, total)))
    try:
        engine = TransformersEngine(tiny_student(tmp_path), max_rows=2)
        engine.generate([[5, 6], [7, 8], [9, 10]], Sampling(12))
        engine.logprobs([[5, 6, 7], [7, 8]])
    finally:
        listen(None)
    replies = [done for units, done, total in reports if units == "replies" and total == 3]
    assert replies == sorted(replies)
    assert replies[-1] == 3
    assert ("texts scored", 2, 2) in reports
    track("replies", 3)(1)  # nobody listens
    assert len(reports) == len(replies) + sum(units == "texts scored" for units, _, _ in reports)


def test_a_long_silence_is_broken(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.log.SILENCE_SECONDS", 0.2)
    with no_silence(lambda: "still training"):
        time.sleep(1.0)
    count = caplog.messages.count("still training")
    assert 1 <= count <= 5
    time.sleep(0.5)
    assert caplog.messages.count("still training") == count
