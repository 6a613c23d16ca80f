from pathlib import Path

from pipelines.estimates.stage_times import StageTimes


def test_a_stage_is_expected_to_differ_from_its_prediction_as_it_did_before(tmp_path: Path) -> None:
    times = StageTimes(tmp_path / "times.json")
    assert times.factor("measure/clean") == 1.0
    times.store("measure/clean", took=30, predicted=20)
    times.store("measure/recovered", took=10, predicted=20)
    times.store("midtrain", took=0, predicted=20)
    times.store("distill", took=5, predicted=0)
    again = StageTimes(tmp_path / "times.json")
    assert again.factor("measure/clean") == 1.5
    assert again.factor("measure/damaged") == 1.0, "the mean of the measurements"
    assert again.factor("midtrain") == again.factor("distill") == 1.0


def test_a_file_that_cannot_be_read_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "times.json").write_text("{")
    assert StageTimes(tmp_path / "times.json").factor("midtrain") == 1.0
