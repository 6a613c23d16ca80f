import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result

from db.tables import RunInputs
from pipelines.cycle import Cycle
from pipelines.gate import promotion
from pipelines.gate.promotion import decide, roll_back
from pipelines.job import Job
from pipelines.prepare_job import prepare_job
from pipelines.project.lock import project_lock
from pipelines.project.project import Project
from pipelines.request import Request
from pipelines.settings.schema import Settings
from recovery.errors import RecoverError
from recovery.lab import BASE
from tests.db.seeded import store_verdict
from tests.models import save_tiny
from tests.pipelines.options import answer, recover
from tests.pipelines.project.checkpoints import record_checkpoint, record_cycle


def run(project: Project, *arguments: object) -> Result:
    return recover(*arguments, "--project", project.root)


def shown_by(project: Project, *arguments: object) -> str:
    return run(project, *arguments).stdout


def test_rollback_undoes_promotions_one_by_one_down_to_the_clean_model(project: Project) -> None:
    first, second = (record_cycle(project, "promoted") for _ in range(2))
    assert project.current.id == second
    for expected in (first, project.clean.id):
        current = project.current.id
        assert [c.id for c in roll_back(project, dry_run=True)] == [current, expected]
        assert [c.id for c in roll_back(project)] == [current, expected]
        assert project.current.id == expected
    assert [cycle.status for cycle in project.reader.cycles(project.id)] == ["promoted", "promoted"]
    with pytest.raises(RecoverError, match="nothing to go back to"):
        roll_back(project)


def test_rollback_undoes_the_promotion_of_an_earlier_checkpoint(project: Project) -> None:
    first, second, third = (record_cycle(project, "promoted") for _ in range(3))
    for earlier in ("cycle:2", "cycle:1"):
        decide(project, project.resolve(earlier), "promoted", "it reads better")
    assert [roll_back(project)[1].id for _ in range(2)] == [second, third]
    decide(project, project.resolve("cycle:2"), "rejected", "it repeats itself")
    assert [roll_back(project)[1].id for _ in range(2)] == [first, project.clean.id]


def test_rollback_undoes_the_promotion_of_an_earlier_model_from_outside(project: Project, tmp_path: Path) -> None:
    outside = [save_tiny(tmp_path / name) for name in ("one", "two")]
    for path in (*outside, outside[0]):
        decide(project, project.resolve(str(path)), "promoted", "by hand")
    assert [Path(roll_back(project, "worse")[1].path).name for _ in range(2)] == ["two", "one"]


def test_a_rollback_undoes_what_was_promoted_while_it_waited(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = record_cycle(project, "promoted"), record_cycle(project)
    lock = promotion.command_lock

    @contextmanager
    def promoting(held: Project) -> Iterator[None]:
        project.tracker.promote(project.id, None, other, "promoted", "ada", "meanwhile")
        with lock(held):
            yield

    monkeypatch.setattr(promotion, "command_lock", promoting)
    current, previous = roll_back(project, "  ")
    assert (current.reference, previous.id) == ("cycle:2/recovered", first)
    assert project.reader.promotions(project.id)[0].why == "rolled back from cycle:2/recovered"


def test_a_model_from_outside_that_is_gone_is_not_made_current_again(project: Project, tmp_path: Path) -> None:
    outside = Path(shutil.copytree(BASE, tmp_path / "tune"))
    assert run(project, "promote", outside).exit_code == 0
    record_cycle(project, "promoted")
    shutil.rmtree(outside)
    for more in ([], ["--dry-run"]):
        assert run(project, "rollback", *more).exit_code == 1
    assert project.current.reference == "cycle:1/recovered"


def test_a_dry_promotion_records_no_folder(project: Project, tmp_path: Path) -> None:
    outside = save_tiny(tmp_path / "tune")
    would = answer(project, "promote", outside, "--dry-run")
    assert (would["checkpoint"], would["decision"], would["current"]) == (str(outside), "promoted", "base")
    assert [c.role for c in project.reader.checkpoints(project.id)] == ["base"]


def test_a_rejection_closes_the_cycle_and_the_current_checkpoint_cannot_be_rejected(project: Project) -> None:
    record_cycle(project, "rejected")
    assert project.reader.cycles(project.id)[0].status == "rejected"
    assert project.current.id == project.clean.id
    decide(project, project.resolve("cycle:1"), "promoted", "on second thoughts")
    assert project.reader.cycles(project.id)[0].status == "promoted"
    for more in ([], ["--dry-run"]):
        assert "recover rollback" in run(project, "promote", "cycle:1", "--reject", "--reason", "no", *more).stderr


def test_nobody_decides_while_a_command_trains(project: Project) -> None:
    """At its end the gate would promote a descendant of what was current before."""
    record_cycle(project, "promoted")
    with project_lock(project.home, "recover cycle --docs X"):
        for command in (["rollback"], ["promote", "cycle:1", "--reject", "--reason", "no"]):
            refused = run(project, *command)
            assert refused.exit_code == 1
        assert "recover cycle --docs X" in run(project, "rollback").stderr
        assert run(project, "rollback", "--dry-run").exit_code == 0
    assert project.current.reference == "cycle:1/recovered"


def test_a_rejection_is_no_error_where_the_weights_of_the_current_model_are_gone(project: Project) -> None:
    promoted, _ = record_cycle(project, "promoted"), record_cycle(project)
    shutil.rmtree(project.reader.checkpoint(promoted).path)
    rejected = run(project, "promote", "cycle:2", "--reject", "--reason", "no")
    assert (rejected.exit_code, "the current checkpoint is cycle:1" in rejected.stdout) == (0, True), rejected.stderr


def test_a_checkpoint_whose_weights_are_gone_is_shown_and_can_be_rejected(project: Project) -> None:
    path = project.reader.checkpoint(record_cycle(project)).path
    shutil.rmtree(path)
    assert f"{path} (gone)" in shown_by(project, "show", "cycle:1")
    assert run(project, "promote", "cycle:1", "--reject").exit_code == 0
    assert project.reader.cycles(project.id)[0].status == "rejected"


def test_a_misspelt_checkpoint_is_not_recorded_by_being_shown(project: Project) -> None:
    for command in (["show"], ["promote", "--reject"]):
        refused = run(project, *command, "cycle1/recovered")
        assert (refused.exit_code, "There is no cycle1/recovered" in refused.stderr) == (1, True)
    assert [c.role for c in project.reader.checkpoints(project.id)] == ["base"]


def test_the_gate_is_overruled_only_with_a_reason_and_status_says_so(project: Project) -> None:
    checkpoint = record_cycle(project)
    store_verdict(project.tracker, checkpoint, {"passed": False, "outcome": "inconclusive", "reason": "too few"})
    for more in ([], ["--dry-run"], ["--reason", "  "]):
        refused = run(project, "promote", "cycle:1", *more)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr == (
            "Error: The gate's verdict on cycle:1/recovered is inconclusive: promoting it anyway needs a reason, "
            "which is stored. Give one with --reason TEXT.\n"
        )
    status = answer(project, "status")
    assert (status["current"], status["cycles"][0]["status"]) == ("base", "open")
    assert run(project, "promote", "cycle:1", "--reject").exit_code == 0  # with the gate
    assert answer(project, "status")["against_gate"] is None
    assert run(project, "promote", "cycle:1", "--reason", "read fifty answers").exit_code == 0
    overruled = answer(project, "status")["against_gate"]
    assert (overruled["outcome"], overruled["why"]) == ("inconclusive", "read fifty answers")
    line = f"promoted against the gate's verdict (inconclusive) by {overruled['who']} on {overruled['at'][:10]}: read"
    assert line in run(project, "status").stdout
    record_cycle(project, "promoted")
    roll_back(project, "back again")
    assert answer(project, "status")["against_gate"]["why"] == "read fifty answers"  # not the reason to return to it


def test_rejecting_what_the_gate_passed_needs_a_reason_too(project: Project) -> None:
    checkpoint = record_cycle(project)
    store_verdict(project.tracker, checkpoint, {"passed": True, "outcome": "passed"})
    with pytest.raises(RecoverError, match="passed: rejecting it anyway needs a reason"):
        decide(project, project.resolve("cycle:1"), "rejected", "")
    decide(project, project.resolve("cycle:1"), "promoted", "")
    assert project.reader.promotions(project.id)[0].why == "decided by a person"


def test_status_names_the_next_command(project: Project) -> None:
    cycle, _ = project.tracker.open_cycle(project.id)
    assert answer(project, "status")["next"] == "recover cycle --docs DIR"
    record_checkpoint(project, cycle, 1, "midtrained")
    assert answer(project, "status")["next"] == "recover distill --teacher base"
    record_checkpoint(project, cycle, 2)
    assert answer(project, "status")["next"] == "recover distill --teacher base", "nothing was measured"
    decide(project, project.resolve("cycle:1"), "rejected", "reads badly")
    assert answer(project, "status")["next"] == "recover cycle --docs DIR"


def test_every_suite_has_a_score_or_null(project: Project) -> None:
    record_cycle(project, role="midtrained")
    nothing = dict.fromkeys(("behaviour", "knowledge", "earlier", "retention"))
    (shown,) = answer(project, "status")["cycles"]
    assert shown["clean"] == shown["damaged"] == shown["recovered"] == nothing
    lineage = answer(project, "show", "cycle:1/midtrained")["lineage"]
    assert [row["scores"] for row in lineage] == [nothing] * 2
    assert shown_by(project, "show", "cycle:1/midtrained").endswith("lineage\n  cycle:1/midtrained\n  base\n")
    assert "None" not in shown_by(project, "show", "base")


def test_an_interrupted_job_can_be_cancelled_and_the_earlier_open_cycle_is_next_again(project: Project) -> None:
    record_cycle(project, role="midtrained")
    job = Job("midtrain", Settings()).save(project.home)
    second, _ = project.tracker.open_cycle(project.id)
    interrupted = project.tracker.start_run(project.id, "midtrain", second, inputs=RunInputs(job=job.id))
    project.tracker.finish_run(interrupted, "failed", "no such rate")
    assert answer(project, "status")["next"] == "recover resume"
    assert run(project, "cancel", "99").exit_code == run(project, "resume", "99").exit_code == 1
    assert answer(project, "cancel", interrupted)["given_up"] == "midtrain"
    assert answer(project, "status")["next"] == "recover distill --teacher base"
    (given_up,) = project.reader.runs(project.id)[:1]
    assert (given_up.id, given_up.status, given_up.resumable) == (interrupted, "failed", False)
    assert "no such rate" in (given_up.error or "")
    checkpoint = project.latest_midtrained()
    assert checkpoint.reference == "cycle:1/midtrained"
    assert "No command was interrupted" in answer(project, "cancel")["error"]


def test_an_interrupted_job_is_not_resumed_where_it_would_drop_what_was_promoted_since(
    project: Project, docs: Path
) -> None:
    job = prepare_job(project, Request("cycle", docs=docs))
    assert answer(project, "status")["next"] == "recover resume"
    record_cycle(project, "promoted")
    status = answer(project, "status")
    assert (status["interrupted"], status["next"]) == (["cycle"], "recover cycle --docs DIR")
    refused = run(project, "resume").stderr
    assert "would drop cycle:1/recovered" in refused
    assert all(command in refused for command in ("`recover cancel", "`recover promote base"))
    assert refused.removeprefix("Error: ").strip() in shown_by(project, "status")
    begun = project.tracker.start_run(project.id, "midtrain", inputs=RunInputs(job=job.id))
    later = Job("distill", Settings(), current=project.current.id).save(project.home)
    refused = run(project, "resume", begun).stderr
    assert f"`recover cancel {begun}`" in refused, "without a number it discards the later one"
    assert answer(project, "status")["next"] == "recover resume"
    later.delete(project.home)
    assert run(project, "promote", "base").exit_code == 0
    assert answer(project, "status")["next"] == "recover resume"
    own = project.tracker.start_run(project.id, "distill", inputs=RunInputs(job=job.id))
    promoted = project.tracker.checkpoint(project.id, "recovered", "r", parent=project.clean.id, run=own)
    project.tracker.promote(project.id, None, promoted, "promoted", "gate", "passes")
    assert answer(project, "status")["next"] == "recover resume", "it only has to end"


def test_a_cycle_that_another_command_promoted_is_not_opened_again_by_the_one_that_began_it(project: Project) -> None:
    cycle, number = project.tracker.open_cycle(project.id)
    began, other = (Job(name, Settings(), current=project.clean.id).save(project.home) for name in ("cycle", "distill"))
    ids = []
    for job, stage in ((began, "midtrained"), (other, "recovered"), (began, "recovered")):
        run_id = project.tracker.start_run(project.id, "distill", cycle, inputs=RunInputs(job=job.id, stage=stage))
        project.tracker.finish_run(run_id, "done")
        folder = project.checkpoint_folder(run_id)
        ids.append(project.tracker.checkpoint(project.id, stage, folder, run=run_id, cycle=cycle))
    midtrained = project.reader.checkpoint(ids[0])
    project.tracker.promote(project.id, cycle, ids[1], "promoted", "gate", "passes")
    other.delete(project.home)
    assert run(project, "promote", "base").exit_code == 0
    assert "Cycle 1, which `recover cycle` belongs to, was promoted" in run(project, "resume").stderr
    assert Cycle(project, began)._in_cycle_of(midtrained).cycle is None
    assert Cycle(project, other)._in_cycle_of(midtrained).cycle_number == number, "it was killed before its end"


def test_a_folder_without_a_model_is_not_promoted(project: Project, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    assert project.current.role == "base"
    for reference in (str(tmp_path / "notes"), "nosuch/thing"):
        ran = run(project, "promote", reference)
        assert (ran.exit_code, "No tokenizer could be loaded" in ran.stderr) == (1, True), ran.stderr
    assert project.current.role == "base"


def test_status_and_runs_print_what_was_measured(project: Project) -> None:
    cycle, _ = project.tracker.open_cycle(project.id)
    checkpoint = record_checkpoint(project, cycle, 1)
    measuring = project.tracker.start_run(project.id, "eval", cycle)
    for suite, task, value in (("earlier", "cycle:1", 0.9), ("retention", "own_world", 0.75)):
        score = {"suite": suite, "task": task, "data": "lab", "seconds": 1.0}
        project.tracker.evaluation(checkpoint, measuring, score | {"metrics": {"match": {"value": value, "n": 20}}})
    rows = [line.split() for line in shown_by(project, "status").splitlines()]
    assert ["cycle", "1", "0.900", "0.750"] in rows
    assert ["earlier", "what", "it"] in rows, "the first line of the names of both measures"
    assert "what it knew before" in " ".join(shown_by(project, "show", "cycle:1").split())
    (listed,) = [one for one in answer(project, "runs")["runs"] if one["scores"]]
    assert listed["scores"] == {"behaviour": None, "knowledge": None, "earlier": 0.9, "retention": 0.75}
    assert "earlier cycles 0.900 · what it knew before 0.750" in shown_by(project, "runs")
