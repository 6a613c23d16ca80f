"""Run the `lm_eval` command on local files: the reference for our evaluation, in verdicts and in time."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The command after one extra line, as lm-eval does not seed the language detector.
SEEDED = (
    "import langdetect; langdetect.DetectorFactory.seed = 0; from lm_eval.__main__ import cli_evaluate; cli_evaluate()"
)


@dataclass(frozen=True)
class Report:
    results: dict[str, Any]  # the metrics, with lm-eval's names
    samples: list[dict[str, Any]]  # one per document and filter
    generating: float  # its own time of the evaluation, including loading the model
    cpu_seconds: float  # processor time of the whole command; varies less on a shared machine


def task_file(folder: Path, yaml: str, rows: Mapping[str, str | Path]) -> Path:
    """A task file that runs one of lm-eval's tasks (`gsm8k/gsm8k.yaml`) on local JSONL files, by split."""
    spec = find_spec("lm_eval")
    assert spec is not None
    assert spec.origin is not None
    original = Path(spec.origin).parent / "tasks" / yaml
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


def run_command(model: str, task: Path, folder: Path, limit: int, batch_size: int, threads: int, dtype: str) -> Report:
    """`lm_eval run --model hf` with the chat template applied."""
    flags = ["--model", "hf", "--model_args", f"pretrained={model},dtype={dtype}", "--device", "cpu"]
    flags += ["--tasks", str(task), "--apply_chat_template", "--batch_size", str(batch_size)]
    flags += ["--log_samples", "--output_path", str(folder / "out"), "--limit", str(limit)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    cpu = _cpu_of_children()
    process = subprocess.run(
        [sys.executable, "-c", SEEDED, "run", *flags], env=environment, capture_output=True, text=True, check=False
    )
    cpu_seconds = _cpu_of_children() - cpu
    if process.returncode:
        raise RuntimeError(f"lm_eval failed:\n{process.stderr[-4000:]}")
    report = json.loads(_newest(folder / "out", "results_*.json").read_text())
    lines = _newest(folder / "out", "samples_*.jsonl").read_text().split("\n")
    samples = [json.loads(line) for line in lines if line]
    [results] = report["results"].values()
    return Report(results, samples, float(report["total_evaluation_time_seconds"]), cpu_seconds)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _newest(folder: Path, pattern: str) -> Path:
    return max(folder.rglob(pattern), key=lambda path: path.stat().st_mtime)
