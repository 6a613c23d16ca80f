"""The `lm_eval` command itself, on data from files: what our measuring is held against, in verdicts and in time."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The command, but for one line before it: lm-eval leaves the language detector unseeded.
SEEDED = (
    "import langdetect; langdetect.DetectorFactory.seed = 0; from lm_eval.__main__ import cli_evaluate; cli_evaluate()"
)


@dataclass(frozen=True)
class Report:
    results: dict[str, Any]  # the numbers, under lm-eval's names
    samples: list[dict[str, Any]]  # one for each document and filter
    seconds: float  # the whole command, its start included
    generating: float  # what it says the evaluation itself took, the loading of the model included
    cpu_seconds: float  # processor time of the whole command: on a machine shared with others the steadier measure


def task_file(folder: Path, yaml: str, rows: Mapping[str, str | Path]) -> Path:
    """One of lm-eval's own tasks (`gsm8k/gsm8k.yaml`) on the rows of local files: split → JSONL."""
    original = _tasks() / yaml
    name = f"{original.stem}_local"
    files = {split: str(Path(path).absolute()) for split, path in rows.items()}
    config = {
        "include": str(original),
        "task": name,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": files},
    }
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(config))  # JSON is YAML
    return file


def run_command(
    model: str, task: Path, folder: Path, *, limit: int | None = None, batch_size: int = 1, threads: int = 1
) -> Report:
    """`lm_eval run --model hf` in float32 with the chat template applied."""
    asked = ["--model", "hf", "--model_args", f"pretrained={model},dtype=float32", "--device", "cpu"]
    asked += ["--tasks", str(task), "--apply_chat_template", "--batch_size", str(batch_size)]
    asked += ["--log_samples", "--output_path", str(folder / "out")]
    asked += ["--limit", str(limit)] if limit else []
    surroundings = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    started, cpu = time.perf_counter(), _cpu_of_children()
    ended = subprocess.run(
        [sys.executable, "-c", SEEDED, "run", *asked], env=surroundings, capture_output=True, text=True, check=False
    )
    seconds, cpu_seconds = time.perf_counter() - started, _cpu_of_children() - cpu
    if ended.returncode:
        raise RuntimeError(f"lm_eval failed:\n{ended.stderr[-4000:]}")
    report = json.loads(_newest(folder / "out", "results_*.json").read_text())
    lines = _newest(folder / "out", "samples_*.jsonl").read_text().split("\n")
    samples = [json.loads(line) for line in lines if line]
    [results] = report["results"].values()
    return Report(results, samples, seconds, float(report["total_evaluation_time_seconds"]), cpu_seconds)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tasks() -> Path:
    found = find_spec("lm_eval")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "tasks"


def _newest(folder: Path, pattern: str) -> Path:
    return max(folder.rglob(pattern), key=lambda path: path.stat().st_mtime)
