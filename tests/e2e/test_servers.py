"""A distillation by the command line with two real vLLM servers; one is killed in the middle and started again."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.project.project import Project
from recovery.lab import BASE
from tests.e2e.command_line import RECOVER, recover
from tests.pipelines.options import SMALL_DISTILLATION, set_options
from tests.vllm_server import VllmServer, running

pytestmark = [pytest.mark.vllm, pytest.mark.release]
STEPS = 3
SMALL = [*SMALL_DISTILLATION, *set_options("lora_rank=8")]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VllmServer, VllmServer]]:
    folder = tmp_path_factory.mktemp("servers")
    engine = VllmServer(str(BASE), folder / "engine.log", rank=8)
    teacher = VllmServer(str(BASE), folder / "teacher.log")
    with running(engine, teacher):
        yield engine, teacher


def test_a_distillation_survives_a_server_that_is_killed_and_started_again(
    servers: tuple[VllmServer, VllmServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, teacher = servers
    command = ["distill", "--student", "base", "--engine", engine.address, "--teacher", teacher.address, "--json"]
    command += [*SMALL, "--limit", "4", "--max-steps", str(STEPS), "--warm-start", "off"]
    lines = []
    with subprocess.Popen(
        [*RECOVER, *command], cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    ) as process:
        for line in process.stderr:
            lines.append(line)
            if line.startswith(f"  step 1/{STEPS}"):
                engine.kill()
                engine.start()
        printed = process.stdout.read()
    output = "".join(lines)
    assert process.returncode in (0, 3), output
    result = json.loads(printed)
    assert f"The server {engine.address} " in output
    assert result["recovered"]["behaviour"] is not None
    (run,) = [run for run in recover(tmp_path, "runs").data["runs"] if run["kind"] == "distill"]
    monkeypatch.chdir(tmp_path)
    points = Project.open_existing(None).reader.points(run["run"])
    assert {point.step for point in points if point.name == "kl"} == set(range(STEPS))
