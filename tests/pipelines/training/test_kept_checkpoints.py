"""Checkpoints of probes in a distillation: kept within the setting, recorded, and promoted by their reference."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipelines.cli import main
from pipelines.project.project import Project
from pipelines.training import training_run
from pipelines.training.probes import DistillProbe, ProbeResult
from recovery.lab import BASE
from tests.pipelines.options import set_options

SETTINGS = set_options(
    "distill.steps=5",
    "distill.rows=2",
    "distill.max_new_tokens=16",
    "distill.prompts=12",
    "distill.probe_every=1",
    "distill.keep=2",
    "distill.warm_start=off",
    "gate.block=0",
    "gate.samples=0",
)
BEHAVIOUR = (0.5, 0.6, 0.7, 0.8)  # of the probes after the first four steps: each has more of the one,
RETENTION = (0.9, 0.8, 0.95, 0.6)  # and all but the third less of the other


@pytest.fixture
def scripted_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes of fixed scores, by the number of steps that the student has taken."""

    def on(self: DistillProbe, student: object, engine: object, with_retention: bool = False):
        def probe(best: float | None) -> ProbeResult:
            step = student.updates  # type: ignore[attr-defined]
            if not with_retention:
                return ProbeResult(0.5, None, 0.4, False)
            return ProbeResult(BEHAVIOUR[step - 1], None, 0.4, False, RETENTION[step - 1])

        return probe

    monkeypatch.setattr(DistillProbe, "on", on)


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[set[str]]]:
    """The checkpoints on disk after each save."""
    seen: list[set[str]] = []
    save = training_run.save_student

    def watched(student: object, folder: Path, about: dict) -> None:
        others = {path.name for path in folder.parent.glob("*-step-*")}
        save(student, folder, about)  # type: ignore[arg-type]
        seen.append({path.name for path in folder.parent.glob("*-step-*")} | others)

    monkeypatch.setattr(training_run, "save_student", watched)
    return seen


def distill(project: Path) -> Result:
    command = ["distill", "--student", str(BASE), "--teacher", "base", "--limit", "2", "--json", *SETTINGS]
    return CliRunner().invoke(main, [*command, "--project", str(project)])


def recover(project: Path, *command: str) -> Result:
    return CliRunner().invoke(main, [*command, "--project", str(project), "--json"])


@pytest.mark.slow
def test_the_kept_checkpoints_are_recorded_promoted_and_collected(
    tmp_path: Path, scripted_probes: None, folders: list[set[str]]
) -> None:
    completed = distill(tmp_path)
    assert completed.exit_code in (0, 3), completed.stderr
    assert folders, completed.stderr
    assert max(map(len, folders)) <= 2
    project = Project.open(tmp_path)
    [run] = [run.id for run in project.reader.runs(project.id) if run.kind == "distill"]
    kept = project.reader.probe_checkpoints(run)
    assert [one.reference for one in kept] == [f"run:{run}/step:3", f"run:{run}/step:4"]
    assert {Path(one.path).name for one in kept} == folders[-1] == {path.name for path in _points(project)}
    end = project.reader.run_checkpoint(run)
    assert end is not None
    assert (end.step, end.reference, end.of_probe) == (5, f"run:{run}", False)
    assert {point.value for point in project.reader.points(run, names=["probe/retention"])} == set(RETENTION)
    assert json.loads((Path(kept[0].path) / "recover.json").read_text())["step"] == 3
    assert recover(tmp_path, "gc", "--rejected").exit_code == 0
    was_rejected = completed.exit_code == 3
    assert bool(_points(project)) is not was_rejected or not was_rejected


@pytest.mark.release
def test_another_point_than_the_last_can_be_promoted(tmp_path: Path, scripted_probes: None) -> None:
    completed = distill(tmp_path)
    assert completed.exit_code in (0, 3), completed.stderr
    project = Project.open(tmp_path)
    [run] = [run.id for run in project.reader.runs(project.id) if run.kind == "distill"]
    reference = f"run:{run}/step:3"
    without_reason = recover(tmp_path, "promote", reference)
    assert without_reason.exit_code == 1
    assert "The gate has not judged run:" in json.loads(without_reason.stdout)["error"]
    promoted = recover(tmp_path, "promote", reference, "--reason", "kept more of what it knew")
    assert json.loads(promoted.stdout)["current"] == reference, promoted.stderr
    assert recover(tmp_path, "gc", "--rejected").exit_code == 0
    assert f"run-{run:04d}-step-0003" in {path.name for path in _points(project)}
    exported = recover(tmp_path, "export", reference, "--to", str(tmp_path / "exported"))
    assert exported.exit_code == 0, exported.stderr
    missing = recover(tmp_path, "show", f"run:{run}/step:1")
    assert missing.exit_code == 1
    assert "There is no run:" in json.loads(missing.stdout)["error"]


@pytest.mark.release
def test_a_resumed_run_keeps_the_same_points(
    tmp_path: Path, scripted_probes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = distill(tmp_path / "whole")
    assert whole.exit_code in (0, 3), whole.stderr
    update = training_run.TrainingRun._update_frontier

    def interrupted(self: training_run.TrainingRun, point, *rest) -> None:
        update(self, point, *rest)
        if point.step == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training_run.TrainingRun, "_update_frontier", interrupted)
        assert distill(tmp_path / "resumed").exit_code == 130
    resumed = recover(tmp_path / "resumed", "resume")
    assert resumed.exit_code == whole.exit_code, resumed.stderr
    hashes = []
    for folder in ("whole", "resumed"):
        project = Project.open(tmp_path / folder)
        [run] = [run.id for run in project.reader.runs(project.id) if run.kind == "distill"]
        hashes.append([(one.step, one.hash) for one in project.reader.probe_checkpoints(run)])
    assert hashes[0] == hashes[1] != []


def _points(project: Project) -> list[Path]:
    return sorted((project.home / "checkpoints").glob("*-step-*"))
