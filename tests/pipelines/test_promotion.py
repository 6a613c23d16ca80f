"""Promotion, rejection and going back, on a real record without a model."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from db.tracker import Role
from pipelines.cli import main
from pipelines.job import Job
from pipelines.project.garbage_collection import sweep
from pipelines.project.past_cycles import past_cycles
from pipelines.project.project import Project, weights_hash
from pipelines.promotion import before_last, decide
from recovery.errors import RecoverError
from recovery.lab import BASE


def checkpoint(project: Project, cycle: int, number: int, role: Role = "recovered") -> int:
    run = project.tracker.start_run(project.id, "distill", cycle)
    folder = project.checkpoint_folder(run)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"x" * number)
    made = project.tracker.checkpoint(
        project.id, role, folder, parent=project.clean.id, run=run, cycle=cycle, hash=weights_hash(folder)
    )
    project.tracker.finish_run(run, "done")
    return made


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.open(tmp_path)


def test_going_back_undoes_promotions_one_by_one_down_to_the_clean_model(project: Project) -> None:
    made = {}
    for number in (1, 2):
        cycle, _ = project.tracker.open_cycle(project.id)
        made[number] = checkpoint(project, cycle, number)
        decide(project, project.resolve(f"cycle:{number}"), "promoted", "good")
    assert project.current.id == made[2]
    for expected in (made[1], project.clean.id):
        back = before_last(project)
        assert back.id == expected
        decide(project, back, "promoted", "rolled back", closes_cycle=False)
        assert project.current.id == expected
    with pytest.raises(RecoverError, match="nothing to go back to"):
        before_last(project)


def test_a_persons_rejection_closes_the_cycle_and_the_current_one_cannot_be_rejected(project: Project) -> None:
    cycle, _ = project.tracker.open_cycle(project.id)
    checkpoint(project, cycle, 1)
    decide(project, project.resolve("cycle:1"), "rejected", "reads badly")
    assert project.reader.cycles(project.id)[0].status == "rejected"
    assert project.current.id == project.clean.id
    decide(project, project.resolve("cycle:1"), "promoted", "on second thoughts")
    assert project.reader.cycles(project.id)[0].status == "promoted"
    with pytest.raises(RecoverError, match="recover rollback"):
        decide(project, project.resolve("cycle:1"), "rejected", "no")


def test_status_says_what_the_last_cycle_waits_for(project: Project) -> None:
    def following() -> str:
        ran = CliRunner().invoke(main, ["status", "--json", "--project", str(project.root)])
        return str(json.loads(ran.stdout)["next"])

    cycle, _ = project.tracker.open_cycle(project.id)
    assert following() == "recover cycle --docs DIR"
    checkpoint(project, cycle, 1, "midtrained")
    assert following() == "recover distill --teacher base"
    checkpoint(project, cycle, 2)
    assert following().startswith("recover promote cycle:1")
    decide(project, project.resolve("cycle:1"), "rejected", "reads badly")
    assert following() == "recover cycle --docs DIR"


def test_what_was_interrupted_can_be_given_up_and_what_waited_before_it_waits_again(project: Project) -> None:
    cycle, _ = project.tracker.open_cycle(project.id)
    checkpoint(project, cycle, 1, "midtrained")
    job = Job("midtrain", {}, 0).write(project.home)
    broken, _ = project.tracker.open_cycle(project.id)
    run = project.tracker.start_run(project.id, "midtrain", broken, {"job": job.id})
    project.tracker.finish_run(run, "failed", "no such rate")

    def asked(*words: str) -> tuple[int, str]:
        ran = CliRunner().invoke(main, [*words, "--json", "--project", str(project.root)])
        return ran.exit_code, ran.stdout

    assert json.loads(asked("status")[1])["next"] == "recover resume"
    assert asked("cancel", "99")[0] == asked("resume", "99")[0] == 1
    assert json.loads(asked("cancel", str(run))[1])["given_up"] == "midtrain"
    assert json.loads(asked("status")[1])["next"] == "recover distill --teacher base"
    (given_up,) = project.reader.runs(project.id)[:1]
    assert (given_up.id, given_up.status, given_up.waits) == (run, "failed", False)
    assert "no such rate" in (given_up.error or "")
    found = project.latest_midtrained()
    assert found is not None
    assert found.reference == "cycle:1/midtrained"
    assert "nothing was interrupted" in asked("cancel")[1]


def test_what_is_no_model_is_not_promoted(project: Project, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    assert project.current.role == "base"
    for reference in (str(tmp_path / "notes"), "nosuch/thing"):
        ran = CliRunner().invoke(main, ["promote", reference, "--project", str(project.root)])
        assert (ran.exit_code, "cannot load" in ran.stderr) == (1, True), ran.stderr
    assert project.current.role == "base"


def test_only_what_nothing_refers_to_is_swept(project: Project) -> None:
    for number, decision in ((1, "promoted"), (2, "rejected"), (3, None)):
        cycle, _ = project.tracker.open_cycle(project.id)
        checkpoint(project, cycle, number)
        if decision:
            decide(project, project.resolve(f"cycle:{number}"), decision, "because")
    stray = project.home / "checkpoints" / "run-0099"
    half = project.home / "checkpoints" / "run-0003.partial"
    old = project.home / "progress" / "run-0001"
    for folder in (stray, half, old):
        folder.mkdir(parents=True)
    named = {path.name for path, _ in sweep(project, rejected=False, dry_run=True)}
    assert named == {"run-0099", "run-0003.partial", "run-0001"}
    assert old.exists()
    swept = {path.name for path, _ in sweep(project, rejected=True, dry_run=False)}
    assert swept == named | {"run-0002"}
    assert not stray.exists()
    assert (project.home / "checkpoints" / "run-0001").exists()  # promoted
    assert (project.home / "checkpoints" / "run-0003").exists()  # its cycle is open
    with pytest.raises(RecoverError, match="are gone"):
        project.resolve("cycle:2")


def test_a_project_whose_folder_was_moved_is_the_same_project(tmp_path: Path) -> None:
    here = tmp_path / "here"
    project = Project.open(here)
    cycle, _ = project.tracker.open_cycle(project.id)
    made = checkpoint(project, cycle, 1)
    decide(project, project.resolve("cycle:1"), "promoted", "good")
    project.tracker.close()
    here.rename(tmp_path / "there")
    moved = Project.open(tmp_path / "there")
    assert moved.name == project.name
    assert moved.current.id == made
    assert Path(moved.current.path).is_dir()


def test_the_built_in_base_is_found_where_the_tool_is_installed_now(tmp_path: Path) -> None:
    before = Project(tmp_path, "/gone/site-packages/recovery/lab/base", base_is_default=True)
    clean = before.clean.id
    before.tracker.close()
    now = Project.open(tmp_path)
    assert (now.base, now.base_is_default) == (str(BASE), True)
    for found in (now.clean, now.current, now.resolve("base"), now.resolve(str(BASE))):
        assert (found.id, found.path) == (clean, str(BASE))


def test_a_base_that_lies_in_the_project_moves_with_it(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "model").mkdir(parents=True)
    (here / "recover.toml").write_text('base = "model"')
    project = Project.open(here)
    clean = project.clean.id
    project.tracker.close()
    here.rename(there)
    for found in (Project.open(there).clean, Project.open(there, str(there / "model")).clean):
        assert (found.id, found.path) == (clean, str(there / "model"))


def test_weights_that_were_changed_are_refused(project: Project) -> None:
    cycle, _ = project.tracker.open_cycle(project.id)
    run = project.tracker.start_run(project.id, "distill", cycle)
    folder = project.checkpoint_folder(run)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"good")
    project.tracker.checkpoint(project.id, "recovered", folder, run=run, cycle=cycle, hash=weights_hash(folder))
    assert project.resolve("cycle:1").path == str(folder)
    (folder / "model.safetensors").write_bytes(b"bad!")
    with pytest.raises(RecoverError, match="another hash"):
        project.resolve("cycle:1")


def test_a_clean_model_that_is_another_than_at_the_beginning_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"clean")
    project = Project.open(tmp_path / "project", str(model))
    assert project.weights(project.clean) == weights_hash(model)
    (model / "model.safetensors").write_bytes(b"other")
    again = Project.open(tmp_path / "project")
    for look in (lambda: again.resolve("base"), lambda: again.weights(again.current)):
        with pytest.raises(RecoverError, match="not those that this project began with"):
            look()


def test_what_an_interrupted_command_goes_on_from_is_not_swept(project: Project) -> None:
    cycle, _ = project.tracker.open_cycle(project.id)
    made = checkpoint(project, cycle, 1)
    decide(project, project.resolve("cycle:1"), "rejected", "because")
    job = Job("distill", {}, 0, student=made).write(project.home)
    run = project.tracker.start_run(project.id, "distill", None, {"job": job.id, "stage": "recovered"})
    before = project.home / "progress" / f"run-{run:04d}.before"  # killed between the two renames of a save
    before.mkdir(parents=True)
    assert sweep(project, rejected=True, dry_run=False) == []
    job.done(project.home)
    swept = {path.name for path, _ in sweep(project, rejected=True, dry_run=False)}
    assert swept == {before.name, "run-0001"}


def test_what_waits_for_a_decision_and_what_an_adapter_sits_on_are_not_swept(project: Project) -> None:
    cycle, _ = project.tracker.open_cycle(project.id)
    below, above = (checkpoint(project, cycle, n, role) for n, role in ((1, "midtrained"), (2, "recovered")))
    config = {"base_model_name_or_path": str(project.checkpoint_folder(1))}
    (project.checkpoint_folder(2) / "adapter_config.json").write_text(json.dumps(config))
    decide(project, project.resolve("cycle:1"), "promoted", "because")
    run = project.tracker.start_run(project.id, "distill", None)
    alone = project.checkpoint_folder(run)
    alone.mkdir()
    waiting = project.tracker.checkpoint(project.id, "recovered", alone, run=run)
    assert (below, above, waiting) == (2, 3, 4)
    assert sweep(project, rejected=True, dry_run=False) == []
    project.tracker.promote(project.id, None, waiting, "rejected", "ada", "reads badly")
    assert [path for path, _ in sweep(project, rejected=True, dry_run=False)] == [alone]


def test_a_cycle_whose_knowledge_was_measured_in_bits_taught_something_too(project: Project) -> None:
    cycle, number = project.tracker.open_cycle(project.id)
    run = project.tracker.start_run(project.id, "midtrain", cycle, {"corpus": "c0ffee"})
    read = project.tracker.checkpoint(project.id, "midtrained", "m", parent=project.clean.id, run=run, cycle=cycle)
    made = project.tracker.checkpoint(project.id, "recovered", "r", parent=read, cycle=cycle)
    project.tracker.promote(project.id, cycle, made, "promoted", "ada", "it reads well")
    found = project.reader.checkpoint(made)
    assert found is not None
    assert [(each.cycle, each.known) for each in past_cycles(project, found)] == [(number, 0.0)]
