"""The examples run, with two steps each, and `recover check` reads what they write."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.command_line import recover

ROOT = Path(__file__).parents[1]
SLURM, SKYPILOT = (ROOT / "examples" / name for name in ("slurm.sbatch", "skypilot.yaml"))
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
