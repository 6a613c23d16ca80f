"""Old files that are damaged, incomplete or in use; the frozen project in tests/e2e shows a whole upgrade."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pipelines.jobs.job import unfinished_jobs
from pipelines.project.lock import project_lock
from pipelines.project.upgrade import upgrade_files
from recovery.errors import RecoverError

OLD_JOB: dict[str, Any] = {"command": "midtrain", "settings": {"midtrain": {"replay": "auto"}}, "seed": 3}


def old_job(home: Path, id: str, age: int = 0) -> Path:
    file = home / "errands" / f"{id}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(OLD_JOB | {"id": id}))
    os.utime(file, (1_700_000_000 - age, 1_700_000_000 - age))
    return file


def test_jobs_keep_their_order_and_get_defaults_for_missing_fields(tmp_path: Path) -> None:
    for age, id in enumerate(["newest", "b", "a", "c", "oldest"]):
        old_job(tmp_path, id, age)
    upgrade_files(tmp_path)
    jobs = unfinished_jobs(tmp_path)
    assert [job.id for job in jobs] == ["oldest", "c", "a", "b", "newest"]
    assert (jobs[0].settings.midtrain.mix.answers, jobs[0].seed, jobs[0].router) == ("auto", 3, False)
    assert not (tmp_path / "errands").exists()


def test_leftovers_of_interrupted_saves_do_not_stop_an_upgrade(tmp_path: Path) -> None:
    old_job(tmp_path, "whole")
    (tmp_path / "errands" / "half.json.partial").write_text("{")
    (tmp_path / "errands" / "notes.txt").write_text("mine")
    for folder in ("run-0001.partial", "run-0002"):
        (tmp_path / "progress" / folder).mkdir(parents=True)
        (tmp_path / "progress" / folder / "notes.json").write_text("")
    upgrade_files(tmp_path)
    assert [job.id for job in unfinished_jobs(tmp_path)] == ["whole"]
    assert [file.name for file in (tmp_path / "errands.old").iterdir()] == ["notes.txt"]
    upgrade_files(tmp_path)


def test_a_job_that_cannot_be_read_is_named_by_the_command_that_needs_it(tmp_path: Path) -> None:
    old_job(tmp_path, "bad").write_text("")
    upgrade_files(tmp_path)
    with pytest.raises(RecoverError, match=r"The job in .*jobs/bad\.json cannot be read"):
        unfinished_jobs(tmp_path)


def test_saved_states_and_checkpoints_get_the_new_names_and_others_stay_as_they_are(tmp_path: Path) -> None:
    old_job(tmp_path, "a")
    state, checkpoint, untouched = (
        tmp_path / path
        for path in ("progress/run-1/notes.json", "checkpoints/run-1/recover.json", "checkpoints/run-2/recover.json")
    )
    for file, content in (
        (state, {"watch": {"seconds": 2.0, "warm": {"share": 0.3}}, "stopped": ""}),
        (checkpoint, {"run": 1, "trained": {"tokens": 7, "warm": None}}),
        (untouched, {"run": 2}),
    ):
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(content))
    before = untouched.read_bytes()
    upgrade_files(tmp_path)
    assert json.loads(state.read_text()) == {"monitor": {"seconds": 2.0}, "warm_start": {"share": 0.3}, "stopped": ""}
    assert json.loads(checkpoint.read_text())["trained"] == {"tokens": 7, "warm_start": None}
    assert untouched.read_bytes() == before


def test_a_project_in_use_is_upgraded_later(tmp_path: Path) -> None:
    old_job(tmp_path, "a")
    with project_lock(tmp_path, "recover cycle"), pytest.raises(RecoverError, match="recover cycle"):
        upgrade_files(tmp_path)
    assert (tmp_path / "errands" / "a.json").exists()
