from pathlib import Path
from typing import Any

import pytest

from pipelines.demo import DOCUMENTS_ALONE, in_words
from pipelines.project.project import Project
from tests.pipelines.options import data_of, recover


def test_changes_against_the_clean_model_are_said_in_points() -> None:
    models = {
        "clean": {"behaviour": 0.923, "knowledge": 0.02, "earlier": None, "retention": 1.0},
        DOCUMENTS_ALONE: {"behaviour": 0.557, "knowledge": 0.93, "earlier": None, "retention": None},
        "recovered": {"behaviour": 0.92, "knowledge": 0.98, "earlier": None, "retention": 0.987},
    }
    alone, cycle = in_words(models)
    assert alone == "Reading the documents alone: -36.6 points of instruction following, +91.0 points of new knowledge."
    assert cycle == (
        "The cycle: -0.3 points of instruction following, +96.0 points of new knowledge, -1.3 points of what it knew "
        "before."
    )
    assert in_words({name: models[name] for name in ("clean", DOCUMENTS_ALONE)}) == [alone]


@pytest.mark.slow
def test_the_same_command_goes_on_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.demo.BRIEF", ("midtrain.max_steps=2", "midtrain.rows=4"))
    monkeypatch.setattr("pipelines.demo.QUICK_ITEMS", 4)
    command = ("demo", "--quick", "--project", tmp_path / "demo", "--json")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    for interrupted in (
        "pipelines.training.training_run.TrainingRun._save_checkpoint",
        "pipelines.demo.Cycle.judge_student",
    ):
        with monkeypatch.context() as broken:
            broken.setattr(interrupted, interrupt)
            stopped = recover(*command)
        assert (stopped.exit_code, "Run the same command again to go on" in stopped.stdout) == (130, True)
    first, second = (data_of(recover(*command)) for _ in range(2))
    assert first["models"] == second["models"]
    project = Project.open(tmp_path / "demo")
    assert [run.kind for run in project.reader.runs(project.id)] == ["eval", "eval", "midtrain"]
    assert [cycle.status for cycle in project.reader.cycles(project.id)] == ["rejected"]
    assert len(project.reader.promotions(project.id)) == 1
