"""Files of a project as earlier releases wrote them, brought to today's names. The database upgrades itself."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from db.migrations.renamed_settings import renamed
from pipelines.atomic_files import write_atomic

OLD_JOBS = "errands"


def upgrade_files(home: Path) -> None:
    """Rewrite unfinished jobs, the saved states of runs, and the notes of checkpoints; safe to repeat."""
    old_jobs = home / OLD_JOBS
    if not old_jobs.is_dir():
        return
    for file in (home / "progress").glob("*/notes.json"):
        _rewrite(file, _saved_state)
    for file in (home / "checkpoints").glob("*/recover.json"):
        _rewrite(file, _checkpoint)
    for file in old_jobs.glob("*.json"):
        job = _job(json.loads(file.read_text(encoding="utf-8")))
        write_atomic(home / "jobs" / file.name, [json.dumps(job, indent=1)])
        file.unlink()
    old_jobs.rmdir()  # last: until then an interrupted upgrade starts again


def _rewrite(file: Path, upgrade: Any) -> None:
    write_atomic(file, [json.dumps(upgrade(json.loads(file.read_text(encoding="utf-8"))))])


def _job(old: Mapping[str, Any]) -> dict[str, Any]:
    corpus = {"hash": old["corpus"], "path": old["documents"], "files": old["files"]} if old["corpus"] else None
    same = ("id", "command", "seed", "start", "student", "teacher", "router", "prompts", "ask")
    return {
        **{name: old[name] for name in same},
        "settings": renamed(old["settings"]),
        "eval_plan": old["measures"],
        "corpus": corpus,
    }


def _saved_state(notes: dict[str, Any]) -> dict[str, Any]:
    if "watch" not in notes:
        return notes
    monitor = dict(notes["watch"])
    return {"monitor": monitor, "warm_start": monitor.pop("warm"), "stopped": notes["stopped"]}


def _checkpoint(notes: dict[str, Any]) -> dict[str, Any]:
    if "warm" not in notes.get("trained", {}):
        return notes
    trained = dict(notes["trained"])
    trained["warm_start"] = trained.pop("warm")
    return notes | {"trained": trained}
