"""Runs the real command line in a process of its own, as a user's shell would."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECOVER = [sys.executable, "-m", "pipelines.cli"]


@dataclass
class Completed:
    exit_code: int
    data: Any  # the object that --json printed, else standard output
    stderr: str


def recover(folder: Path, *arguments: object, as_json: bool = True) -> Completed:
    command = [*RECOVER, *map(str, arguments), *(["--json"] if as_json else [])]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "100"}
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    data = json.loads(process.stdout) if as_json and process.stdout.strip() else process.stdout
    return Completed(process.returncode, data, process.stderr)
