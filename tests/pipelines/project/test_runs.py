import pytest

from db.tables import RunInputs
from pipelines.project.project import Project
from pipelines.project.runs import past_cycles, recorded_run


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
