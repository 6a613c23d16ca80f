"""A project of an earlier release is upgraded and its interrupted cycle resumed, through the real command line."""

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command_line import Completed, recover

pytestmark = pytest.mark.release
ARCHIVE = Path(__file__).with_name("frozen") / "project-0002.tar.gz"
STORED = Path("/home/ada/project/.recover")  # where the project was written
OLD_NAMES = {
    *("across", "soft", "recollections", "replay", "recollect", "rehearse", "reword", "remember"),
    *("errand", "beside", "reworded", "watch", "warm"),
}


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of all commands by name, and the files and the record right after the first one."""
    folder = tmp_path_factory.mktemp("upgrade")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    project = folder / "project"
    home = project / ".recover"
    results: dict[str, Any] = {"home": home, "upgrade": recover(project, "db", "upgrade")}
    results["files"] = {file.relative_to(home): file.read_text() for file in _json_files(home)}
    results["errands"] = (home / "errands").exists()
    results["record"] = recorded_runs(home)
    results["upgrade again"] = recover(project, "db", "upgrade")
    results["files again"] = {file.relative_to(home): file.read_text() for file in _json_files(home)}
    results["record again"] = recorded_runs(home)
    results["status"] = recover(project, "status")
    results["runs"] = recover(project, "runs")
    results["show"] = recover(project, "show", "cycle:1")
    results["resume"] = recover(project, "resume")
    results["status after"] = recover(project, "status")
    results["show after"] = recover(project, "show", "cycle:2")
    results["resume again"] = recover(project, "resume")
    return results


def _json_files(home: Path) -> list[Path]:
    patterns = ("jobs/*.json", "progress/*/notes.json", "checkpoints/*/recover.json")
    return sorted(file for pattern in patterns for file in home.glob(pattern))


def recorded_runs(home: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(home / "recover.db")) as record:
        rows = record.execute("SELECT id, kind, settings, inputs FROM runs ORDER BY id").fetchall()
    return [
        {"id": id, "kind": kind, "settings": json.loads(settings), "inputs": json.loads(inputs)}
        for id, kind, settings, inputs in rows
    ]


def names_in(value: Any) -> set[str]:
    """All keys of nested objects."""
    if isinstance(value, dict):
        return set(value) | {name for nested in value.values() for name in names_in(nested)}
    return {name for nested in value for name in names_in(nested)} if isinstance(value, list) else set()


def test_every_command_succeeds(upgraded: dict[str, Any]) -> None:
    for name, completed in upgraded.items():
        if isinstance(completed, Completed) and name != "resume again":
            assert completed.exit_code == 0, f"{name}: {completed.stderr}"


def test_the_unfinished_job_moves_to_its_new_folder(upgraded: dict[str, Any]) -> None:
    assert not upgraded["errands"]
    (job,) = (json.loads(text) for file, text in upgraded["files"].items() if file.parts[0] == "jobs")
    assert (job["command"], job["router"], job["corpus"]["files"]) == ("cycle", True, 6)
    assert job["settings"]["midtrain"]["mix"] == {"answers": 0.0, "texts": 0.0, "earlier": 0.3, "paraphrases": 0}
    assert (job["settings"]["distill"]["warm_start"], job["settings"]["distill"]["earlier_prompts"]) == (0.3, 0.33)
    assert upgraded["status"].data["interrupted"] == ["cycle"]


def test_saved_states_and_checkpoints_get_their_new_names(upgraded: dict[str, Any]) -> None:
    files = {file: json.loads(text) for file, text in upgraded["files"].items()}
    (saved,) = (notes for file, notes in files.items() if file.parts[0] == "progress")
    assert (saved["warm_start"], saved["stopped"], saved["monitor"]["tokens"]) == ({"share": 0.3}, "", 283)
    checkpoints = [notes for file, notes in files.items() if file.parts[0] == "checkpoints"]
    assert [notes["trained"]["warm_start"] for notes in checkpoints] == [None, None, None]
    assert not OLD_NAMES & names_in([notes for file, notes in files.items() if file.parts[0] != "jobs"])


def test_runs_have_inputs_and_settings_with_their_new_names(upgraded: dict[str, Any]) -> None:
    runs = {run["id"]: run for run in upgraded["record"]}
    first, second = runs[1]["inputs"], runs[7]["inputs"]
    assert first["stage"] == second["stage"] == "midtrained"
    assert first["mix"] == second["mix"] == {"answers": 0.0, "texts": 0.0}
    assert first["questions"] == str(STORED / "questions" / "a257b0d296063311" / "questions-1.jsonl")
    assert second["questions"] == str(STORED / "questions" / "af9e3bd53e2a59b4" / "questions-2.jsonl")
    for inputs in (first, second):
        assert (upgraded["home"] / "documents" / f"{inputs['corpus'][:32]}.jsonl").is_file()
    assert runs[5]["inputs"] == {"job": first["job"], "stage": "recovered", "teacher": "base"}
    router = "base (and cycle:1/recovered for openings of earlier documents)"
    assert runs[10]["inputs"] == {"job": second["job"], "stage": "recovered", "teacher": router}
    assert {Path(file).stem for file in upgraded["files"] if file.parts[0] == "jobs"} == {second["job"]}
    for number, run in runs.items():
        settings, measured = run["settings"], run["kind"] == "eval"
        assert run["inputs"]["job"] == (first if number < 7 else second)["job"]
        assert not (OLD_NAMES - ({"beside"} if measured else set())) & names_in(settings)
        if measured:
            assert run["inputs"]["stage"].startswith("measure/")
            assert {"suite", "part", "limit", "beside", "questions"} <= set(settings)
        else:
            assert settings["midtrain"]["mix"] == {"answers": 0.0, "texts": 0.0, "earlier": 0.3, "paraphrases": 0}
            assert settings["midtrain"]["cross_document_attention"] is True
            assert settings["distill"]["warm_start"] == ("default" if number < 7 else 0.3)
    assert upgraded["show"].data["inputs"] == runs[5]["inputs"]
    assert upgraded["show"].data["settings"] == runs[5]["settings"]
    assert upgraded["runs"].data["runs"][0]["status"] == "interrupted"


def test_an_upgraded_project_stays_as_it_is(upgraded: dict[str, Any]) -> None:
    assert upgraded["upgrade again"].data == upgraded["upgrade"].data
    assert upgraded["files again"] == upgraded["files"]
    assert upgraded["record again"] == upgraded["record"]


def test_the_interrupted_cycle_goes_on_from_its_saved_state(upgraded: dict[str, Any]) -> None:
    resumed, messages = upgraded["resume"], upgraded["resume"].stderr
    assert "Going on at step 4 of 8" in messages
    assert "step 3/8" not in messages
    assert "step 4/8" in messages
    assert messages.count("Reusing the stored results") == 2  # of the clean and the mid-trained model
    assert (resumed.data["cycle"], resumed.data["steps"], resumed.data["promoted"]) == (2, 8, True)
    assert resumed.data["warm_start"] == {"share": 0.3}
    assert set(resumed.data["earlier"]) == {"1"}
    status = upgraded["status after"].data
    assert (status["current"], status["interrupted"]) == ("cycle:2/recovered", [])
    assert [cycle["status"] for cycle in status["cycles"]] == ["promoted", "promoted"]
    assert upgraded["show after"].data["run"] == 10
    assert upgraded["show after"].data["inputs"]["teacher"].startswith("base (and cycle:1/recovered")
    assert not list((upgraded["home"] / "jobs").iterdir())


def test_afterwards_nothing_is_left_to_resume(upgraded: dict[str, Any]) -> None:
    again = upgraded["resume again"]
    assert again.exit_code == 1
    assert "No command was interrupted here" in again.data["error"]
