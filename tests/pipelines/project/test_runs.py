import pytest

from db.tables import RunInputs
from pipelines.evaluation.checkpoint_measurement import store_results
from pipelines.project.project import Project
from pipelines.project.runs import past_cycles, recorded_run
from tests.evals.fakes import result
from tests.pipelines.project.checkpoints import record_checkpoint


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


def test_a_past_cycle_names_the_evaluation_that_has_its_answers(project: Project) -> None:
    cycle, _ = project.tracker.open_cycle(project.id)
    run = project.tracker.start_run(project.id, "midtrain", cycle, inputs=RunInputs(corpus="c0ffee"))
    midtrained = project.tracker.checkpoint(
        project.id, "midtrained", "m", parent=project.clean.id, run=run, cycle=cycle
    )
    recovered = record_checkpoint(project, cycle, 1, parent=midtrained)
    project.tracker.promote(project.id, cycle, recovered, "promoted", "ada", "it reads well")
    checkpoint = project.resolve("cycle:1")
    answers = result([True, False], "closed_book", "knowledge")
    store_results(project, checkpoint, checkpoint.run_id, "key", [answers])
    (past,) = past_cycles(project, checkpoint)
    assert past.evaluation is not None
    assert project.reader.passes(past.evaluation) == answers.passed_by_key()


def test_a_cycle_whose_knowledge_was_measured_in_bits_counts_too(project: Project) -> None:
    cycle, number = project.tracker.open_cycle(project.id)
    run = project.tracker.start_run(project.id, "midtrain", cycle, inputs=RunInputs(corpus="c0ffee"))
    midtrained = project.tracker.checkpoint(
        project.id, "midtrained", "m", parent=project.clean.id, run=run, cycle=cycle
    )
    recovered = project.tracker.checkpoint(project.id, "recovered", "r", parent=midtrained, cycle=cycle)
    project.tracker.promote(project.id, cycle, recovered, "promoted", "ada", "it reads well")
    checkpoint = project.reader.checkpoint(recovered)
    assert checkpoint is not None
    assert [(past.cycle, past.knowledge) for past in past_cycles(project, checkpoint)] == [(number, 0.0)]
