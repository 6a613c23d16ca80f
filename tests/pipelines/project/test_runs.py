import json
from pathlib import Path

import pytest

from db.tables import RunInputs
from evals.suites.suite_measurement import of_file
from pipelines.evaluation.checkpoint_measurement import store_results
from pipelines.project.project import Project
from pipelines.project.runs import dropped_cycles, past_cycles, recorded_run, runs_of_command
from pipelines.repair import MOVES
from tests.evals.fakes import result
from tests.pipelines.project.checkpoints import promoted_cycle, record_checkpoint


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (KeyboardInterrupt(), "interrupted", None),
        (ValueError("no such rate"), "failed", "no such rate"),
        (ValueError(), "failed", "ValueError"),
    ],
)
def test_a_run_ends_as_its_block_does(project: Project, error: BaseException, status: str, text: str | None) -> None:
    with pytest.raises(type(error)), recorded_run(project, "midtrain", None, {}, 0):
        raise error
    (run,) = project.reader.runs(project.id)
    assert (run.status, run.error) == (status, text)


def test_a_stage_of_a_job_with_other_prompts_or_another_limit_is_another_run(project: Project) -> None:
    def run(prompts: str | None = None, limit: int | None = None) -> int:
        inputs = RunInputs(job="abcd1234", stage="recovered", prompts=prompts)
        with recorded_run(project, "distill", None, {"limit": limit}, 0, inputs) as id:
            return id

    different = [run(), run("c0ffee"), run(limit=40), run(limit=400)]
    assert len(set(different)) == 4
    assert [run(), run("c0ffee"), run(limit=40), run(limit=400)] == different


def test_every_move_of_a_repair_belongs_to_it(project: Project) -> None:
    for name in ("", *MOVES):
        inputs = RunInputs(job=f"abcd1234-{name}" if name else "abcd1234", stage="distill")
        with recorded_run(project, "distill", None, {}, 0, inputs):
            pass
    assert len(runs_of_command(project, "abcd1234")) == 1 + len(MOVES)
    assert runs_of_command(project, "abcd") == []


def test_a_past_cycle_names_the_evaluation_that_has_its_answers(project: Project) -> None:
    checkpoint = promoted_cycle(project)
    answers = result([True, False], "closed_book", "knowledge")
    store_results(project, checkpoint, checkpoint.run_id, "key", [answers])
    (past,) = past_cycles(project, checkpoint)
    assert project.reader.passes(past.evaluation) == answers.passed_by_key()


def test_a_cycle_whose_knowledge_was_measured_in_bits_counts_too(project: Project) -> None:
    assert [(past.cycle, past.knowledge) for past in past_cycles(project, promoted_cycle(project))] == [(1, 0.0)]


def test_a_cycle_counts_whichever_checkpoint_was_distilled_from_its_mid_trained_one(project: Project) -> None:
    first = promoted_cycle(project)
    again = record_checkpoint(project, None, 2, parent=first.parent_id)
    for checkpoint, passed in ((first.id, [True, False]), (again, [True, True, False])):
        answers = result(passed, "closed_book", "knowledge")
        store_results(project, project.reader.checkpoint(checkpoint), None, "key", [answers])
    later = project.tracker.checkpoint(project.id, "midtrained", "m2", parent=again)
    for checkpoint in (again, later):
        (past,) = past_cycles(project, project.reader.checkpoint(checkpoint))
        assert (past.cycle, past.checkpoint, past.knowledge) == (1, again, pytest.approx(2 / 3))
    (past,) = past_cycles(project, first)
    assert (past.checkpoint, past.knowledge) == (first.id, 0.5)
    unmeasured = record_checkpoint(project, None, 3, parent=first.parent_id)
    (past,) = past_cycles(project, project.reader.checkpoint(unmeasured))
    assert (past.checkpoint, past.knowledge) == (unmeasured, 0.5), "what the cycle's own end knew is to be kept"
    assert past_cycles(project, project.reader.checkpoint(first.parent_id)) == []


def test_a_cycle_that_was_rejected_counts_while_the_model_has_it(project: Project) -> None:
    """It may be rejected to free its disk; what the current model learned from it is to be kept all the same."""
    first = promoted_cycle(project)
    replaced = record_checkpoint(project, None, 2, parent=first.parent_id)
    project.tracker.promote(project.id, None, replaced, "promoted", "ada", "it reads better")
    project.tracker.promote(project.id, first.cycle, first.id, "rejected", "ada", "the other one replaces it")
    later = project.tracker.checkpoint(project.id, "midtrained", "m2", parent=replaced)
    for checkpoint in (replaced, later):
        (past,) = past_cycles(project, project.reader.checkpoint(checkpoint))
        assert (past.cycle, past.checkpoint) == (1, replaced)
    cycle, _ = project.tracker.open_cycle(project.id)
    of_the_rejected = project.tracker.checkpoint(project.id, "midtrained", "m3", parent=first.id, cycle=cycle)
    (past,) = past_cycles(project, project.reader.checkpoint(of_the_rejected))
    assert past.cycle == 1, "its promotion would take the place of a model that has learned it"


def test_a_mid_trained_checkpoint_that_was_promoted_ends_its_cycle(project: Project) -> None:
    first = promoted_cycle(project)
    project.tracker.promote(project.id, first.cycle, first.id, "rejected", "ada", "reads badly")
    project.tracker.promote(project.id, None, first.parent_id, "promoted", "ada", "it needs no distillation")
    later = project.tracker.checkpoint(project.id, "midtrained", "m2", parent=first.parent_id)
    (past,) = past_cycles(project, project.reader.checkpoint(later))
    assert (past.cycle, past.checkpoint) == (1, first.parent_id)


def test_an_attempt_of_an_older_cycle_would_drop_what_was_promoted_since(project: Project) -> None:
    cycle, _ = project.tracker.open_cycle(project.id)
    older = project.tracker.checkpoint(project.id, "midtrained", "m1", parent=project.clean.id, cycle=cycle)
    assert not dropped_cycles(project, project.reader.checkpoint(older)), "nothing was promoted yet"
    second, third = promoted_cycle(project), promoted_cycle(project)
    for student in (older, record_checkpoint(project, cycle, 4, parent=older), second.id):
        assert dropped_cycles(project, project.reader.checkpoint(student)) == "cycle 3"
    again = record_checkpoint(project, None, 5, parent=third.parent_id)
    outside = project.tracker.checkpoint(project.id, "external", "./mine")
    after = project.tracker.checkpoint(project.id, "midtrained", "m4", parent=project.clean.id)
    for checkpoint in (third.id, again, outside, project.clean.id, after):
        assert not dropped_cycles(project, project.reader.checkpoint(checkpoint))
    number = project.tracker.open_cycle(project.id)
    chained = project.tracker.checkpoint(project.id, "midtrained", "m5", parent=third.id, cycle=number.id)
    end = record_checkpoint(project, number.id, 6, parent=chained)
    project.tracker.promote(project.id, number.id, end, "promoted", "ada", "it reads well")
    assert dropped_cycles(project, project.reader.checkpoint(older)) == f"cycles 3, {number.number}"
    assert dropped_cycles(project, project.reader.checkpoint(again)) == f"cycle {number.number}"
    project.tracker.promote(project.id, None, third.id, "promoted", "ada", "back")
    assert not dropped_cycles(project, project.reader.checkpoint(again))


def test_an_attempt_would_drop_a_cycle_that_began_before_it_and_was_promoted_after_it(project: Project) -> None:
    """Both were mid-trained from the base, and the first was distilled last."""
    cycles = [project.tracker.open_cycle(project.id)[0] for _ in range(2)]
    first, second = (
        project.tracker.checkpoint(project.id, "midtrained", f"m{cycle}", parent=project.clean.id, cycle=cycle)
        for cycle in cycles
    )
    end = record_checkpoint(project, cycles[0], 3, parent=first)
    project.tracker.promote(project.id, cycles[0], end, "promoted", "gate", "every limit is met")
    assert dropped_cycles(project, project.reader.checkpoint(second)) == "cycle 1"
    third = project.tracker.checkpoint(project.id, "midtrained", "m3", parent=project.clean.id)
    project.tracker.promote(project.id, cycles[0], end, "promoted", "ada", "back to it")
    assert not dropped_cycles(project, project.reader.checkpoint(third)), "what was promoted before is left on purpose"


def test_only_a_measurement_by_a_cycle_s_own_questions_says_what_it_knew(project: Project, tmp_path: Path) -> None:
    """Any other is of what the gate does not ask."""
    own, other = tmp_path / "own.jsonl", tmp_path / "other.jsonl"
    for file in (own, other):
        file.write_text(json.dumps({"question": f"Who is {file.stem}?", "answer": "Ada"}))
    checkpoint = promoted_cycle(project, own)
    known = []
    for file, passed in ((other, [True]), (own, [True, True, False]), (other, [True]), (own, [False])):
        answers = of_file(file, [result(passed, "closed_book", "knowledge")])
        store_results(project, checkpoint, None, f"key {len(known)}", answers)
        (past,) = past_cycles(project, checkpoint)
        known.append(past.knowledge)
    assert known == [None, *[pytest.approx(2 / 3)] * 3]


def test_the_questions_of_a_cycle_are_those_of_its_distillation_if_that_was_given_any(
    project: Project, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    checkpoints = [promoted_cycle(project, *files) for files in ((None, second), (first, second), (first, None))]
    assert [past_cycles(project, end)[0].questions for end in checkpoints] == [second, second, first]
