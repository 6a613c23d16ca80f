"""The real command line, as a user's shell would start it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECOVER = [sys.executable, "-m", "pipelines.cli"]


@dataclass
class Ran:
    code: int
    found: Any
    words: str


def recover(folder: Path, *arguments: object, json_wanted: bool = True) -> Ran:
    command = [*RECOVER, *map(str, arguments), *(["--json"] if json_wanted else [])]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "100"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    found = json.loads(done.stdout) if json_wanted and done.stdout.strip() else done.stdout
    return Ran(done.returncode, found, done.stderr)
