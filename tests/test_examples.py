"""The examples run, with two steps each; the commands of the GitHub Action as GitHub runs them, with `pip` replaced."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from recovery.lab import BASE
from recovery.models.students import load_student, save_student
from tests.e2e.command_line import recover

ROOT = Path(__file__).parents[1]
SLURM, SKYPILOT = (ROOT / "examples" / name for name in ("slurm.sbatch", "skypilot.yaml"))
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "github-action.yml").read_text(encoding="utf-8"))
needs_trl = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is not installed (extra bench)")


@pytest.mark.parametrize(
    ("script", "data"),
    [
        pytest.param("raw_text", "my-finetune-data/docs", marks=pytest.mark.slow),
        pytest.param("instructions", "my-finetune-data.jsonl", marks=[needs_trl, pytest.mark.release]),
        pytest.param("preferences", "my-finetune-data.jsonl", marks=[needs_trl, pytest.mark.release]),
    ],
)
def test_an_example_writes_a_model_that_check_reads(tmp_path: Path, script: str, data: str) -> None:
    subprocess.run(
        [sys.executable, ROOT / "examples" / f"{script}.py", "--to", "my-finetune", "--steps", "2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        check=True,
    )
    completed = recover(tmp_path, "check", "my-finetune", "--docs", data, "--limit", "8").ended(0, 3, 4)
    assert {row["suite"] for row in completed.data["forgotten"]} == {"behaviour", "retention"}
    assert completed.data["learned"]


def test_the_slurm_script_starts_the_command_on_all_nodes(tmp_path: Path) -> None:
    """With programs that print what they were called with, in place of Slurm's and torch's."""
    programs = {"scontrol": "echo node-0; echo node-1", "srun": 'shift; exec "$@"', "torchrun": 'echo "$@"'}
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "node-[0-1]", "SLURM_JOB_ID": "7", "SHARED": "/shared"}
    environment = os.environ | slurm | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def called(**more: str) -> str:
        command = ["bash", str(SLURM)]
        return subprocess.run(command, env=environment | more, capture_output=True, text=True, check=True).stdout

    assert "--nnodes=2 --nproc-per-node=8" in called()
    assert "--rdzv-endpoint=node-0:29500" in called()
    assert called().endswith(
        "-m pipelines.cli cycle --project /shared/project --docs /shared/corpus --base Qwen/Qwen3-8B\n"
    )
    assert called(COMMAND="resume").endswith("-m pipelines.cli resume --project /shared/project\n")


def test_the_skypilot_task_starts_a_cycle_and_then_resumes_it(tmp_path: Path) -> None:
    task = yaml.safe_load(SKYPILOT.read_text(encoding="utf-8"))
    assert task["num_nodes"] == 1
    subprocess.run(["bash", "-n"], input=task["setup"], text=True, check=True)
    (tmp_path / "recover").write_text('#!/bin/bash\necho "$@"\n')
    (tmp_path / "recover").chmod(0o755)
    own = {"HOME": str(tmp_path), "BASE": "base", "SKYPILOT_NUM_GPUS_PER_NODE": "8"}
    environment = os.environ | own | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def called() -> str:
        command = ["bash", "-c", task["run"]]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    flags = f"--project {tmp_path}/project --processes 8\n"
    assert called() == f"cycle --docs {tmp_path}/corpus --base base {flags}"
    (tmp_path / "project" / ".recover" / "jobs").mkdir(parents=True)
    (tmp_path / "project" / ".recover" / "jobs" / "0.json").touch()
    assert called() == f"resume {flags}"


def run_steps(
    folder: Path, model: Path, limit: int, repository: str = "owner/recover"
) -> subprocess.CompletedProcess[str]:
    """All commands of the job, in one shell that stops at the first error."""
    programs = folder / "programs"
    programs.mkdir()
    for name, command in {"pip": "echo pip", "recover": f"{sys.executable} -m pipelines.cli"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        **WORKFLOW["env"],
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "MODEL": str(model),
        "BASE": str(BASE),
        "LIMIT": str(limit),
        "REPOSITORY": repository,
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    script = "\n".join(step["run"] for step in WORKFLOW["jobs"]["check"]["steps"] if "run" in step)
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_without_the_repository_of_recover_nothing_is_installed(tmp_path: Path) -> None:
    completed = run_steps(tmp_path, BASE, 4, repository="")
    assert completed.returncode == 1
    assert completed.stdout.startswith("::error::The variable RECOVER_REPOSITORY is not set.")
    assert "pip install" not in completed.stdout


@pytest.mark.slow
def test_too_few_prompts_warn_and_a_page_is_written(tmp_path: Path) -> None:
    completed = run_steps(tmp_path, BASE, 4)
    assert completed.returncode == 0, completed.stderr
    assert "pip install ./recover" in completed.stdout
    assert "::warning::Too few prompts" in completed.stdout
    assert "too few items" in (tmp_path / "check.html").read_text(encoding="utf-8")
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("```text\nThere are too few items")
    assert summary.endswith("\n```\n")


@pytest.mark.release
def test_the_job_fails_where_too_much_was_forgotten(tmp_path: Path) -> None:
    student = load_student(str(BASE))
    with torch.no_grad():
        for parameter in student.trainable():
            parameter.mul_(1.0 + 0.9 * torch.rand(parameter.shape, generator=torch.Generator().manual_seed(0)))
    save_student(student, tmp_path / "model", {})
    completed = run_steps(tmp_path, tmp_path / "model", 20)
    assert completed.returncode == 3, completed.stderr
    assert f"::error::{tmp_path / 'model'} has forgotten more than the gate allows" in completed.stdout
    assert (tmp_path / "check.html").is_file()
