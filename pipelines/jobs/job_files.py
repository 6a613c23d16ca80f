"""The files of jobs. Unlike `jobs.job` this imports no model library, so that `recover status` stays fast."""

import json
from pathlib import Path
from typing import Any

from pipelines.storage import write_atomic
from recovery.errors import RecoverError, first_line


def write_job(home: Path, id: str, values: dict[str, Any]) -> None:
    write_atomic(_file(home, id), [json.dumps(values, indent=1)])


def delete_job(home: Path, id: str) -> None:
    _file(home, id).unlink(missing_ok=True)


def job_files(home: Path) -> list[Path]:
    """The files of unfinished jobs, the oldest first."""
    return sorted((home / "jobs").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)


def read_job_file(file: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        _ = values["command"]
        return values
    except (ValueError, TypeError, KeyError) as error:
        raise unreadable(file, error) from error


def unreadable(file: Path, error: Exception) -> RecoverError:
    return RecoverError(
        f"The job in {file} cannot be read ({first_line(error)}). Delete the file and run the command again."
    )


def interrupted_commands(home: Path, running_job: str | None) -> list[str]:
    """The commands of unfinished jobs other than the running one, the oldest first."""
    return [str(read_job_file(file)["command"]) for file in job_files(home) if file.stem != running_job]


def _file(home: Path, id: str) -> Path:
    return home / "jobs" / f"{id}.json"
