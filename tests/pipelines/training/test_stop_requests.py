"""Ctrl-C, wherever it comes: exit 130 and a sentence; `recover resume` does only what was not yet done."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from pipelines.cycle import run_job
from pipelines.prepare_job import Request, prepare_job
from pipelines.project.project import Project
from pipelines.training.training_run import RunResult
from recovery.lab import BASE
from tests.e2e.command_line import RECOVER, recover


def ctrl_c(folder: Path, line: str, *typed: object) -> tuple[int, str]:
    """The exit code and all that was said on standard error, where Ctrl-C came when `line` had begun one."""
    said, environment = "", {**os.environ, "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(
        [*RECOVER, *map(str, typed)], cwd=folder, env=environment, text=True, stderr=subprocess.PIPE, preexec_fn=_hears
    ) as process:
        assert process.stderr is not None
        for each in process.stderr:
            said += each
            if each.startswith(line):
                process.send_signal(signal.SIGINT)
    return process.returncode, said


def _hears() -> None:
    """What a shell sends to the background ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_what_a_training_took_is_known_to_whoever_resumes_after_its_end(docs: Path, tmp_path: Path) -> None:
    project = Project.open(tmp_path, str(BASE))
    few = ("midtrain.max_steps=2", "midtrain.rows=2", "midtrain.mix.texts=0", "midtrain.mix.answers=0")
    job = prepare_job(project, Request("midtrain", docs=docs, dotted=few))
    took, again = run_job(project, job), run_job(project, job)
    assert isinstance(took, RunResult)
    assert took.tokens > 0
    assert again == took


@pytest.mark.slow
def test_after_ctrl_c_resume_does_only_what_was_not_yet_done(tunes_answers: list[str], tmp_path: Path) -> None:
    code, said = ctrl_c(tmp_path, "  replay 0:", *tunes_answers)
    assert (code, said.splitlines()[-1]) == (
        130,
        "Error: Interrupted. Everything is saved. Go on with `recover resume`.",
    )

    code, said = ctrl_c(tmp_path, "  step 2/4", "resume")
    assert code == 130
    assert [line.partition(":")[0] for line in said.splitlines() if "probed before" in line] == ["  replay 0"]
    assert "  replay 0.3:" in said

    resumed = recover(tmp_path, "resume")
    assert resumed.exit_code == 0, resumed.stderr
    assert "going on at step 3 of 4" in resumed.stderr
    assert "trying replay" not in resumed.stderr
    shown = recover(tmp_path, "runs")
    assert [(run["kind"], run["status"]) for run in shown.data["runs"]] == [("midtrain", "done")], shown.data
