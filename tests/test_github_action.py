"""The commands of the GitHub Action run as GitHub runs them, with `pip` replaced."""

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

ROOT = Path(__file__).parents[1]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "github-action.yml").read_text(encoding="utf-8"))


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


@pytest.mark.release
def test_the_job_fails_where_too_much_was_forgotten(tmp_path: Path) -> None:
    student = load_student(str(BASE))
    with torch.no_grad():
        for parameter in student.trainable():
            parameter.mul_(1.0 + 0.9 * torch.rand(parameter.shape, generator=torch.Generator().manual_seed(0)))
    save_student(student, tmp_path / "model", {})
    completed = run_steps(tmp_path, tmp_path / "model", 20)
    assert completed.returncode == 3, completed.stderr
    assert "has forgotten more than the gate allows" in completed.stdout
    assert (tmp_path / "check.html").is_file()
