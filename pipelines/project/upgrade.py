"""Files of a project as earlier releases wrote them, brought to today's names. The database upgrades itself."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from db.migrations.renamed_settings import renamed
from pipelines.project.lock import project_lock
from pipelines.storage.atomic_files import write_atomic

OLD_JOBS, LEFTOVERS = "errands", "errands.old"


def upgrade_files(home: Path) -> None:
    """Rewrite unfinished jobs, the saved states of runs, and the notes of checkpoints; safe to repeat.

    Raises RecoverError while another command, perhaps of the earlier release, works in the project."""
    if not (home / OLD_JOBS).is_dir():
        return
    with project_lock(home, "recover db upgrade"):
        for file in _complete(home, "progress/*/notes.json"):
            _rewrite(file, file, _saved_state)
        for file in _complete(home, "checkpoints/*/recover.json"):
            _rewrite(file, file, _checkpoint)
        for file in sorted((home / OLD_JOBS).glob("*.json"), key=lambda file: file.stat().st_mtime_ns):
            _rewrite(file, home / "jobs" / file.name, _job)
            file.unlink()
        _remove_old_folder(home)  # last: until then an interrupted upgrade starts again


def _complete(home: Path, pattern: str) -> list[Path]:
    """Without the folders that an interrupted save left behind."""
    return [file for file in home.glob(pattern) if file.parent.suffix != ".partial"]


def _rewrite(file: Path, target: Path, upgrade: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Upgrade the file's content; what cannot be read stays as it is, for the command that needs it to report."""
    content, times = file.read_text(encoding="utf-8"), file.stat()
    try:
        old = json.loads(content)
        new = upgrade(old)
    except (ValueError, TypeError, KeyError, AttributeError):
        old = new = None
    if new != old:
        content = json.dumps(new, indent=2) + "\n"
    if new != old or target != file:
        write_atomic(target, [content])
        os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))  # jobs are ordered by their times


def _remove_old_folder(home: Path) -> None:
    folder = home / OLD_JOBS
    for file in folder.glob("*.partial"):
        file.unlink()
    if any(folder.iterdir()):
        folder.rename(home / LEFTOVERS)
    else:
        folder.rmdir()


def _job(old: Mapping[str, Any]) -> dict[str, Any]:
    corpus = None
    if old.get("corpus"):
        corpus = {"hash": old["corpus"], "path": old.get("documents") or "", "files": old.get("files", 0)}
    return {
        "id": old["id"],
        "command": old["command"],
        "settings": renamed(old["settings"]),
        "eval_plan": old.get("measures") or {"suite": "all", "part": "all", "limit": None},
        "seed": old["seed"],
        "corpus": corpus,
        **{name: old.get(name) for name in ("start", "student", "teacher", "prompts")},
        **{name: old.get(name, False) for name in ("router", "ask")},
    }


def _saved_state(notes: dict[str, Any]) -> dict[str, Any]:
    if "watch" not in notes:
        return notes
    monitor = dict(notes["watch"])
    warm_start = monitor.pop("warm", None)
    return {"monitor": monitor, "warm_start": warm_start, "stopped": notes.get("stopped", "")}


def _checkpoint(notes: dict[str, Any]) -> dict[str, Any]:
    if "warm" not in notes.get("trained", {}):
        return notes
    trained = dict(notes["trained"])
    trained["warm_start"] = trained.pop("warm")
    return notes | {"trained": trained}
