"""What the dashboard is handed works on a real project, and refuses in a sentence."""

import pytest

from dashboard.actions import ActionError
from evals.suites import lab
from pipelines.cli.dashboard_actions import handed
from pipelines.project.project import Project
from recovery.lab import BASE


@pytest.fixture
def project(tmp_path):
    return Project.open(tmp_path, str(BASE))


def test_models_are_asked_side_by_side(project):
    actions = handed(project)
    base = project.clean.id
    again = project.tracker.checkpoint(project.id, "external", str(BASE))
    first, second = actions.generate([base, again], "Say hello.")
    assert (first.reference, second.reference) == ("base", str(BASE))
    assert first.text == second.text != ""
    with pytest.raises(ActionError, match="no such checkpoint"):
        actions.generate([999], "Say hello.")


def test_instructions_of_a_known_prompt_are_judged(project):
    known = lab.instruction_prompts(5)[0]
    (answer,) = handed(project).generate([project.clean.id], known.text + "\n")
    assert [name for name, _ in answer.instructions] == known.instructions
    (other,) = handed(project).generate([project.clean.id], "Say hello.")
    assert other.instructions == []


def test_a_model_that_is_gone_is_said(project, tmp_path):
    gone = project.tracker.checkpoint(project.id, "external", str(tmp_path / "gone"))
    with pytest.raises(ActionError, match="cannot be asked"):
        handed(project).generate([gone], "Say hello.")


def test_a_person_decides_notes_and_stops(project):
    actions, tracker, reader = handed(project), project.tracker, project.reader
    cycle = tracker.open_cycle(project.id)
    run = tracker.start_run(project.id, "distill", cycle.id)
    made = tracker.checkpoint(project.id, "recovered", "run-1", parent=project.clean.id, run=run, cycle=cycle.id)
    actions.promote(made, "", "it reads well")
    assert project.current.id == made
    assert reader.cycles(project.id)[0].status == "promoted"
    with pytest.raises(ActionError, match="recover rollback"):
        actions.reject(made, "ben", "it is in use")
    assert reader.cycles(project.id)[0].status == "promoted"
    other = tracker.checkpoint(project.id, "recovered", "run-2", run=run, cycle=cycle.id)
    actions.reject(other, "ben", "it does not")
    assert reader.cycles(project.id)[0].status == "promoted", "it was another candidate"
    latest, first = reader.promotions(project.id)
    assert latest.who == "ben"
    assert first.who, "without a name at the door it is the user's"
    actions.add_note("so", "ada", cycle=cycle.id)
    assert [note.text for note in reader.notes(project.id)] == ["so"]
    actions.cancel(run)
    assert reader.cancel_requested(run)
    with pytest.raises(ActionError, match="no such checkpoint"):
        actions.promote(999, "ada", "why")
