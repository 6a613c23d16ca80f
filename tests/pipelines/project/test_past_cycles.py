from pathlib import Path

from db.run_inputs import RunInputs
from pipelines.project.past_cycles import past_cycles
from pipelines.project.project import Project


def test_a_cycle_whose_knowledge_was_measured_in_bits_counts_too(tmp_path: Path) -> None:
    project = Project.open(tmp_path)
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
