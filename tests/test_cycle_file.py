from pathlib import Path

import pytest

from benchmarks import cycle_file
from db.engine import open_database
from db.tracker import Tracker
from pipelines.project.project import Project
from studies.entries import decode
from tests.db.seeded import seed


@pytest.fixture
def project(tmp_path: Path) -> Path:
    engine = open_database(tmp_path / ".recover" / "recover.db")
    with Tracker(engine) as tracker:
        seed(tracker, str(tmp_path.resolve()), steps=3)
    engine.dispose()
    (tmp_path / ".recover" / "name").write_text(str(tmp_path.resolve()), encoding="utf-8")
    return tmp_path


def test_a_cycle_s_file_has_all_models_with_their_items(project: Path) -> None:
    file = project / "cycle.json.gz"
    cycle_file.main([str(project), str(file), "--command", "recover cycle --docs ./docs"])

    stored = decode(file.read_bytes())
    assert stored["command"] == "recover cycle --docs ./docs"
    assert {"commit", "machine", "versions", "settings", "verdict"} <= stored.keys()
    assert {run["kind"] for run in stored["runs"]} >= {"midtrain", "distill"}
    curves = [run["curves"] for run in stored["runs"] if "curves" in run]
    assert curves
    assert all(len(curve["loss"]) == 3 for curve in curves), "one value a step"
    assert stored["models"].keys() == {"base", "midtrained", "recovered"}
    for model in stored["models"].values():
        for suite in model["measured"].values():
            for by_task in suite["outcomes"].values():
                for task, items in by_task.items():
                    metric = next(iter(suite["scores"][task].values()))
                    assert len(items["passed"]) / metric["n"] == metric["value"]
                    assert len(items["passed"]) + len(items["failed"]) == metric["n"]


def test_a_repair_s_file_has_every_model_with_the_settings_that_made_it(project: Path) -> None:
    opened = Project.open(project)
    described = cycle_file.describe_repair(opened)
    assert described["models"].keys() == {c.reference for c in opened.reader.checkpoints(opened.id)}
    base = described["models"].pop("base")
    assert "settings" not in base
    assert base["measured"]
    assert all(model["settings"] for model in described["models"].values())
