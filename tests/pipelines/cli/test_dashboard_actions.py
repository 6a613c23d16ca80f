from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.actions import ActionError
from evals.results import Metric, Result
from evals.suites import lab
from pipelines.cli.dashboard_actions import dashboard_actions
from pipelines.project.project import Project
from recovery.lab import BASE


@pytest.fixture(autouse=True)
def short_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.cli.dashboard_actions.MAX_NEW_TOKENS", 8)


def test_several_models_answer_the_same_prompt_and_missing_ones_are_reported(project: Project, tmp_path: Path) -> None:
    generate = dashboard_actions(project).generate
    copy = project.tracker.checkpoint(project.id, "external", str(BASE))
    first, second = generate([project.clean.id, copy], "Say hello.")
    assert (first.reference, second.reference) == ("base", str(BASE))
    assert first.text == second.text != ""
    with pytest.raises(ActionError, match="no such checkpoint"):
        generate([999], "Say hello.")
    missing = project.tracker.checkpoint(project.id, "external", str(tmp_path / "missing"))
    with pytest.raises(ActionError, match="cannot answer"):
        generate([missing], "Say hello.")


@pytest.mark.parametrize("natural", [False, True])
def test_answers_to_prompts_of_an_evaluation_are_judged(project: Project, natural: bool) -> None:
    asked = lab.instruction_prompts(40, "final", natural=natural)
    name = "lab-natural" if natural else "lab"
    metrics = {"prompt_strict": Metric.from_passes([True] * len(asked))}
    result = Result("ifeval", "behaviour", name, metrics, [], {}, 1.0)
    few = {"prompt_strict": Metric.from_passes([True])}
    for each in (result, replace(result, metrics=few), replace(result, task="refusals", metrics=few)):
        project.tracker.evaluation(project.clean.id, None, each.to_json())
    generate = dashboard_actions(project).generate
    for prompt in (asked[0], asked[-1]):
        (answer,) = generate([project.clean.id], prompt.text + "\n")
        assert [name for name, _ in answer.instructions] == prompt.instructions
    (other,) = generate([project.clean.id], "Say hello.")
    assert other.instructions == []


def test_decisions_notes_and_cancelling(project: Project) -> None:
    actions, tracker, reader = dashboard_actions(project), project.tracker, project.reader
    cycle = tracker.open_cycle(project.id)
    run = tracker.start_run(project.id, "distill", cycle.id)
    checkpoint = tracker.checkpoint(project.id, "recovered", "run-1", parent=project.clean.id, run=run, cycle=cycle.id)
    actions.decide(checkpoint, "", "it reads well", "promoted")
    assert project.current.id == checkpoint
    assert reader.cycles(project.id)[0].status == "promoted"
    with pytest.raises(ActionError, match="recover rollback"):
        actions.decide(checkpoint, "ben", "it is in use", "rejected")
    assert reader.cycles(project.id)[0].status == "promoted"
    other = tracker.checkpoint(project.id, "recovered", "run-2", run=run, cycle=cycle.id)
    actions.decide(other, "ben", "it does not", "rejected")
    assert reader.cycles(project.id)[0].status == "promoted", "another candidate was rejected"
    latest, first = reader.promotions(project.id)
    assert latest.who == "ben"
    assert first.who, "without a name it is the current user's"
    actions.add_note("so", "ada", cycle=cycle.id)
    assert [note.text for note in reader.notes(project.id)] == ["so"]
    actions.cancel(run)
    assert reader.cancel_requested(run)
    with pytest.raises(ActionError, match="no such checkpoint"):
        actions.decide(999, "ada", "why", "promoted")
