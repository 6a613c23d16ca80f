"""Ctrl-C: exit code 130 and a message; `recover resume` repeats nothing that was finished."""

import re
import signal
from pathlib import Path

import pytest

from pipelines.training.training_run import stop_requests
from tests.e2e.command_line import interrupt_at, recover


def test_the_first_signal_asks_for_a_stop_and_the_second_interrupts_at_once() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stop_requests() as requests:
        assert not requests.stop
        signal.raise_signal(signal.SIGTERM)
        assert requests.stop
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.release
def test_resume_after_ctrl_c_repeats_nothing(midtrain_command: list[str], tmp_path: Path) -> None:
    code, output = interrupt_at("Mid-training on", tmp_path, *midtrain_command)
    message = "Error: Interrupted. Go on from the last saved state with `recover resume`."
    assert (code, output.splitlines()[-1]) == (130, message)
    [answers] = (tmp_path / ".recover" / "cache").glob("answers-*")
    written_at = answers.stat().st_mtime_ns

    code, output = interrupt_at("  step 1/4", tmp_path, "resume")
    assert code == 130

    resumed = recover(tmp_path, "resume")
    assert resumed.exit_code == 0, resumed.stderr
    assert re.search(r"Going on at step [2-4] of 4", resumed.stderr)  # a step may have ended before the signal came
    assert answers.stat().st_mtime_ns == written_at
    runs = recover(tmp_path, "runs").data["runs"]
    assert [(run["kind"], run["status"]) for run in runs] == [("midtrain", "done")], runs
