import json
import os
from pathlib import Path
from shutil import rmtree

import pytest

from dashboard.actions import ActionError
from db.tables import RunInputs
from pipelines.cli.dashboard_actions import dashboard_actions
from pipelines.gate.promotion import decide, previous_checkpoint
from pipelines.job import Job, unfinished_jobs
from pipelines.project.maintenance import collect_garbage
from pipelines.project.project import Project, weights_hash
from pipelines.project.runs import run_of_stage
from pipelines.settings.schema import Settings
from recovery.errors import RecoverError
from tests.pipelines.options import recover
from tests.pipelines.project.checkpoints import record_checkpoint, record_cycle


def collected(project: Project, *, rejected: bool = True, dry_run: bool = False) -> list[Path]:
    jobs = {job.id: job.checkpoints for job in unfinished_jobs(project.home)}
    return [path for path, _ in collect_garbage(project, jobs, rejected=rejected, dry_run=dry_run)]


def names(paths: list[Path]) -> set[str]:
    return {path.name for path in paths}


def put_on(below: Path, adapter: Path) -> None:
    """Make the checkpoint in the folder `adapter` one on that in the folder `below`."""
    adapter.mkdir(exist_ok=True)
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(below)}))


def test_only_unreferenced_folders_are_deleted(project: Project) -> None:
    record_cycle(project, "promoted")
    record_cycle(project, "rejected")
    record_cycle(project)
    unrecorded = project.home / "checkpoints" / "run-0099"
    incomplete = project.home / "checkpoints" / "run-0003.partial"
    old_progress = project.home / "progress" / "run-0001"
    for folder in (unrecorded, incomplete, old_progress):
        folder.mkdir(parents=True)
    listed = names(collected(project, rejected=False, dry_run=True))
    assert listed == {"run-0099", "run-0003.partial", "run-0001"}
    assert old_progress.exists()
    deleted = names(collected(project))
    assert deleted == listed | {"run-0002"}
    assert not unrecorded.exists()
    assert (project.home / "checkpoints" / "run-0001").exists()  # promoted
    assert (project.home / "checkpoints" / "run-0003").exists()  # its cycle is open
    with pytest.raises(RecoverError, match="were deleted"):
        project.resolve("cycle:2")


@pytest.mark.parametrize("name", ["export-1234.partial", "tokens-1234.npy.12ab34cd.partial"])
def test_what_another_command_may_still_write_is_not_deleted(name: str, project: Project) -> None:
    record_cycle(project)
    written = project.home / "cache" / name
    written.mkdir(parents=True)
    assert collected(project, rejected=False) == []
    os.utime(written, (0, 0))
    assert collected(project, rejected=False) == [written]


def test_what_an_interrupted_job_needs_is_not_deleted(project: Project) -> None:
    student = record_cycle(project, "rejected")
    job = Job("distill", Settings(), student=student).save(project.home)
    inputs = RunInputs(job=job.id, stage="recovered")
    run = project.tracker.start_run(project.id, "distill", inputs=inputs)
    only_copy = project.home / "progress" / f"run-{run:04d}.before"  # killed between the two renames of a save
    only_copy.mkdir(parents=True)
    assert collected(project) == []
    job.delete(project.home)
    deleted = names(collected(project))
    assert deleted == {only_copy.name, "run-0001"}


def test_what_the_moves_of_an_interrupted_repair_need_is_not_deleted(project: Project) -> None:
    """Their runs have names of their own behind that of the repair."""
    job = Job("repair", Settings(), student=record_cycle(project, "rejected")).save(project.home)
    moves = [f"{job.id}-{move}" for move in ("interpolation", "answers")]
    done, stopped = (
        project.tracker.start_run(project.id, "distill", inputs=RunInputs(job=move, stage="recovered"))
        for move in moves
    )
    folder, progress = project.checkpoint_folder(done), project.home / "progress" / f"run-{stopped:04d}"
    folder.mkdir()
    progress.mkdir(parents=True)
    checkpoint = project.tracker.checkpoint(project.id, "recovered", folder, run=done)
    project.tracker.promote(project.id, None, checkpoint, "rejected", "gate", "fails")
    assert collected(project) == []
    assert run_of_stage(project, moves[0], "recovered") is not None
    job.delete(project.home)
    assert names(collected(project)) >= {folder.name, progress.name}
    assert run_of_stage(project, moves[0], "recovered") is None, "the same command begins it anew"


def test_undecided_checkpoints_and_those_below_an_adapter_are_not_deleted(project: Project) -> None:
    cycle, _ = project.tracker.open_cycle(project.id)
    below, above = (record_checkpoint(project, cycle, n, role) for n, role in ((1, "midtrained"), (2, "recovered")))
    put_on(project.checkpoint_folder(1), project.checkpoint_folder(2))
    decide(project, project.resolve("cycle:1"), "promoted", "because")
    undecided = record_checkpoint(project, None, 3)
    assert (below, above, undecided) == (2, 3, 4)
    assert collected(project) == []
    project.tracker.promote(project.id, None, undecided, "rejected", "ada", "reads badly")
    assert collected(project) == [project.checkpoint_folder(3)]
    record_checkpoint(project, cycle, 5)
    assert collected(project) == [], "an attempt of a closed cycle that nobody judged"


def test_a_promoted_checkpoint_that_was_rejected_later_is_deleted_unless_something_needs_it(project: Project) -> None:
    for _ in range(3):
        record_cycle(project, "promoted")
    decide(project, project.resolve("cycle:2"), "rejected", "reads badly")
    assert previous_checkpoint(project).reference == "cycle:1/recovered"
    put_on(project.checkpoint_folder(2), project.checkpoint_folder(3))
    assert collected(project) == []
    (project.checkpoint_folder(3) / "adapter_config.json").unlink()
    decide(project, project.resolve("cycle:1"), "rejected", "reads worse")
    decide(project, project.resolve("cycle:1"), "promoted", "on second thoughts")
    deleted = collected(project)
    assert deleted == [project.checkpoint_folder(2)]


def test_what_was_deleted_is_not_promoted_and_a_current_model_that_is_gone_can_be_left(project: Project) -> None:
    rejected, current = record_cycle(project, "rejected"), record_cycle(project, "promoted")
    assert collected(project) == [project.checkpoint_folder(1)]
    with pytest.raises(ActionError, match="were deleted"):
        dashboard_actions(project).decide(rejected, "ada", "on second thoughts", "promoted")
    assert project.current.id == current
    rmtree(project.checkpoint_folder(2))
    assert recover("rollback", "--project", project.root).exit_code == 0
    assert project.current.id == project.clean.id


def test_the_current_checkpoint_is_not_deleted_whatever_its_last_decision_is(project: Project) -> None:
    checkpoint = record_cycle(project, "promoted")
    project.tracker.promote(project.id, 1, checkpoint, "rejected", "ada", "answered on the terminal")
    assert project.current.id == checkpoint
    assert collected(project, dry_run=True) == []


def test_of_a_checkpoint_on_another_disk_only_the_link_is_deleted(project: Project, tmp_path: Path) -> None:
    record_cycle(project, "rejected")
    link, disk = project.checkpoint_folder(1), tmp_path / "disk"
    link.rename(disk)
    (disk / "model.safetensors").write_bytes(b"x" * 100_000)
    link.symlink_to(disk)
    ((path, size),) = collect_garbage(project, {}, rejected=True, dry_run=True)
    assert (path, size < 10_000) == (link, True)
    rmtree(disk)  # it is not there now
    assert collected(project) == [link]
    assert not link.is_symlink()


def test_the_start_of_an_open_cycle_is_not_deleted(project: Project) -> None:
    start = record_cycle(project, "rejected")
    second, _ = project.tracker.open_cycle(project.id)
    record_checkpoint(project, second, 2, "midtrained", parent=start)
    assert collected(project, dry_run=True) == []


def test_what_an_adapter_elsewhere_was_trained_on_is_kept(project: Project) -> None:
    """Another machine has distilled the mid-trained model with an adapter, which was promoted."""
    cycle, _ = project.tracker.open_cycle(project.id)
    below = record_checkpoint(project, cycle, 1, "midtrained")
    run = project.tracker.start_run(project.id, "distill", cycle)
    folder = project.checkpoint_folder(run)  # which is on the other machine
    project.tracker.checkpoint(project.id, "recovered", folder, run=run, cycle=cycle, parent=below, kind="adapter")
    decide(project, project.reader.checkpoints(project.id)[-1], "promoted", "because")
    assert collected(project, dry_run=True) == []


def test_an_adapter_that_was_trained_further_is_deleted_but_not_what_is_below_it(project: Project) -> None:
    below = record_cycle(project, "rejected")
    cycle, _ = project.tracker.open_cycle(project.id)
    parent = below
    for role in ("midtrained", "recovered"):
        run = project.tracker.start_run(project.id, "distill", cycle)
        folder = project.checkpoint_folder(run)
        put_on(project.checkpoint_folder(1), folder)
        parent = project.tracker.checkpoint(
            project.id, role, folder, "adapter", parent=parent, run=run, cycle=cycle, hash=weights_hash(folder)
        )
    decide(project, project.resolve("cycle:2"), "promoted", "because")
    assert collected(project, dry_run=True) == [project.checkpoint_folder(2)]
    rmtree(project.checkpoint_folder(3))  # it is on another machine
    assert collected(project, dry_run=True) == [project.checkpoint_folder(2)]
