"""Where jobs are stored. Unlike `pipelines.job` this imports no model library, so that `recover status` stays fast."""

import json
from pathlib import Path

from recovery.errors import RecoverError


def job_file(home: Path, id: str) -> Path:
    return home / "jobs" / f"{id}.json"


def job_files(home: Path) -> list[Path]:
    """The files of unfinished jobs, the oldest first."""
    return sorted((home / "jobs").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)


def unfinished_commands(home: Path) -> list[str]:
    """The commands of unfinished jobs, the oldest first."""
    try:
        return [str(json.loads(file.read_text(encoding="utf-8"))["command"]) for file in job_files(home)]
    except (ValueError, TypeError, KeyError) as error:
        raise RecoverError(
            f"A job in {home / 'jobs'} cannot be read ({error}). Delete it and run the command again."
        ) from error
