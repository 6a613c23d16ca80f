import random
import time
from datetime import timedelta

import pytest
from sqlalchemy import Engine, update

from db.column_types import now
from db.headline_scores import MEASURES
from db.queries import Reader
from db.tables import Project, Run, Stage
from db.tracker import Tracker
from tests.db.seeded import Seeded, add_study, arm, declaration, measure, store_verdict


def test_current_is_the_last_that_was_promoted(reader: Reader, tracker: Tracker, seeded: Seeded) -> None:
    assert reader.current(seeded.project).id == seeded.recovered[1]
    tracker.promote(seeded.project, None, seeded.recovered[0], "promoted", "ada", "the second one stutters")
    assert reader.current(seeded.project).id == seeded.recovered[0]


def test_current_is_the_base_before_any_promotion(reader: Reader, tracker: Tracker, project: int) -> None:
    assert reader.current(project) is None
    base = tracker.checkpoint(project, "base", "/models/lab")
    tracker.checkpoint(project, "midtrained", "run-1", parent=base)
    assert reader.current(project).id == base


def test_references_find_their_checkpoint(reader: Reader, seeded: Seeded) -> None:
    project = seeded.project
    assert reader.base(project).id == seeded.base
    assert reader.cycle_checkpoint(project, 2).id == seeded.recovered[1]
    assert reader.cycle_checkpoint(project, 2, "midtrained").id == seeded.midtrained[1]
    assert reader.run_checkpoint(seeded.midtrain_runs[2]).id == seeded.midtrained[2]
    assert reader.cycle_checkpoint(project, 9) is None
    assert reader.run_checkpoint(999) is None
    assert reader.checkpoint(999) is reader.study(999) is None


def test_every_checkpoint_has_a_reference(reader: Reader, tracker: Tracker, seeded: Seeded) -> None:
    other = tracker.checkpoint(seeded.project, "external", "./my-finetune")
    repaired = tracker.checkpoint(seeded.project, "recovered", "run-9", parent=other, run=seeded.distill_runs[0])
    checkpoints = [reader.checkpoint(id) for id in (seeded.base, seeded.midtrained[0], other, repaired)]
    references = [checkpoint.reference for checkpoint in checkpoints if checkpoint]
    assert references == ["base", "cycle:1/midtrained", "./my-finetune", f"run:{seeded.distill_runs[0]}"]


def test_lineage_leads_to_the_base_without_rejected_checkpoints(reader: Reader, seeded: Seeded) -> None:
    line = [checkpoint.id for checkpoint in reader.lineage(seeded.recovered[2])]
    first, second, third = zip(seeded.recovered, seeded.midtrained, strict=True)
    assert line == [*third, *second, *first, seeded.base]
    assert reader.lineage(999) == []


def test_a_cycle_has_three_stages_with_their_headlines(reader: Reader, seeded: Seeded) -> None:
    first, second, third = reader.cycles(seeded.project)
    assert [cycle.status for cycle in (first, second, third)] == ["promoted", "promoted", "rejected"]
    assert first.damaged.checkpoint.id == seeded.midtrained[0]
    assert third.recovered.scores["earlier"].n == 80, "pooled over two cycles"
    assert {suite: score.value for suite, score in first.damaged.scores.items()} == {
        "behaviour": 0.475,
        "knowledge": 0.925,
        "retention": 0.6,
    }
    assert set(third.recovered.scores) == set(MEASURES)
    assert third.documents == "/home/ada/handbook/2026-q3"
    assert third.verdict["passed"] is False


def test_the_clean_stage_has_the_scores_of_that_cycle(reader: Reader, tracker: Tracker, seeded: Seeded) -> None:
    run = tracker.start_run(seeded.project, "eval", seeded.cycles[0])
    measure(tracker, seeded.base, run, {"knowledge": 0.5}, random.Random(0))
    values = [cycle.clean.scores["knowledge"].value for cycle in reader.cycles(seeded.project)]
    assert values == [0.5, 0.05, 0.05]
    assert {cycle.clean.scores["behaviour"].value for cycle in reader.cycles(seeded.project)} == {0.9}


def test_later_evaluations_do_not_change_the_scores_of_a_cycle(
    reader: Reader, tracker: Tracker, seeded: Seeded
) -> None:
    def scores() -> list[Stage]:
        cycle = reader.cycles(seeded.project)[0]
        return [cycle.clean, cycle.damaged, cycle.recovered, *reader.stages(seeded.project)]

    before = scores()
    for model in (seeded.midtrained[0], seeded.recovered[0]):
        for cycle in (None, seeded.cycles[1]):  # from `recover eval`, and as the start of a later cycle
            run = tracker.start_run(seeded.project, "eval", cycle)
            measure(tracker, model, run, {"knowledge": 0.01}, random.Random(0))
    assert scores() == before


def test_a_run_without_a_heartbeat_is_stale(
    reader: Reader, tracker: Tracker, project: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tracker.start_run(project, "distill")
    tracker.finish_run(tracker.start_run(project, "eval"), "done")
    assert [run.stale for run in reader.runs(project)] == [False, False]
    monkeypatch.setattr("db.queries.STALE_SECONDS", 0.05)
    time.sleep(0.1)
    assert [one.id for one in reader.runs(project) if one.stale] == [run]


def test_rollouts_are_found_by_their_step(reader: Reader, tracker: Tracker, project: int) -> None:
    empty, run = tracker.start_run(project, "distill"), tracker.start_run(project, "distill")
    for step in (0, 10, 20):
        tracker.rollouts(run, step, [{"prompt": "a", "text": f"{step}.{n}"} for n in range(2)])
    tracker.step(run, 21, {"loss": 1.0})
    tracker.flush()
    assert reader.rollout_steps(run) == [0, 10, 20]
    assert [rollout.text for rollout in reader.rollouts(run, 10)] == ["10.0", "10.1"]
    assert (reader.last_rollout(run), reader.last_step(run)) == (20, 21)
    assert reader.last_rollout(empty) is reader.last_step(empty) is None
    assert [with_rollouts.id for with_rollouts in reader.runs_with_rollouts(project)] == [run]


def test_notes_are_selected_by_cycle(reader: Reader, tracker: Tracker, seeded: Seeded) -> None:
    cycle, checkpoint = seeded.cycles[1], seeded.recovered[0]
    tracker.note(seeded.project, "Too **much** of it", "ada", cycle=cycle)
    tracker.note(seeded.project, "The one to ship", "ben", checkpoint=checkpoint)
    everything = reader.notes(seeded.project)
    assert [(note.cycle, note.checkpoint_id, note.who) for note in everything] == [
        (2, None, "ada"), (None, checkpoint, "ben"),
    ]  # fmt: skip
    assert reader.notes(seeded.project, cycle=cycle) == everything[:1]
    assert reader.notes(seeded.project, cycle=seeded.cycles[0]) == reader.notes(seeded.project + 1) == []


def test_documents_come_in_their_order(reader: Reader, tracker: Tracker) -> None:
    corpus = tracker.corpus("docs", "aaa")
    documents = [{"name": f"{n}.md", "hash": "ab" * 32, "bytes": 10 + n} for n in range(12)]
    tracker.documents(corpus, documents)
    tracker.documents(corpus, documents[::-1])  # the same content once more
    stored = [(document.name, document.bytes) for document in reader.documents(corpus)]
    assert stored == [(document["name"], document["bytes"]) for document in documents]


def test_runs_and_decisions_come_newest_first(reader: Reader, seeded: Seeded) -> None:
    runs = reader.runs(seeded.project)
    assert [run.id for run in runs] == sorted((run.id for run in runs), reverse=True)
    assert (runs[0].id, runs[0].kind, runs[0].cycle) == (seeded.distill_runs[2], "distill", 3)
    assert [decision.decision for decision in reader.promotions(seeded.project)] == ["rejected", "promoted", "promoted"]


def test_projects_are_separate(reader: Reader, tracker: Tracker, seeded: Seeded) -> None:
    other = tracker.project("other", "/other", "lab")
    assert reader.current(other) is None
    assert reader.cycles(other) == reader.runs(other) == []
    assert reader.cycle_checkpoint(other, 1) is None


def test_changes_differ_when_a_page_must_be_redrawn(reader: Reader, tracker: Tracker, project: int) -> None:
    marks = [reader.changes(project)]

    def changed() -> bool:
        marks.append(reader.changes(project))
        return marks[-1] != marks[-2]

    assert not changed()
    cycle = tracker.open_cycle(project)
    assert changed()
    run = tracker.start_run(project, "midtrain", cycle.id)
    assert changed()
    tracker.step(run, 0, {"loss": 1.0})
    tracker.flush()
    assert not changed()
    checkpoint = tracker.checkpoint(project, "midtrained", "run-1", run=run, cycle=cycle.id)
    assert changed()
    measure(tracker, checkpoint, run, {"knowledge": 0.5}, random.Random(0))
    assert changed()
    tracker.finish_run(run, "done")
    assert changed()
    tracker.weights_deleted(checkpoint)
    assert changed()
    tracker.promote(project, None, checkpoint, "promoted", "ada", "I like it")
    assert changed()
    tracker.note(project, "so do I", "ben", checkpoint=checkpoint)
    assert changed()
    tracker.open_cycle(tracker.project("other", "/other", "lab"))
    assert not changed()


def test_the_recovered_checkpoint_of_a_cycle_is_the_promoted_one(
    reader: Reader, tracker: Tracker, project: int
) -> None:
    cycle = tracker.open_cycle(project)
    first, second = (tracker.checkpoint(project, "recovered", f"run-{n}", cycle=cycle.id) for n in (1, 2))
    assert reader.cycle_checkpoint(project, cycle.number).id == second
    tracker.promote(project, cycle.id, first, "promoted", "ada", "it reads better")
    assert reader.cycle_checkpoint(project, cycle.number).id == first
    assert reader.cycles(project)[0].recovered.checkpoint.id == first
    tracker.promote(project, cycle.id, first, "rejected", "ada", "it repeats itself")
    assert reader.cycle_checkpoint(project, cycle.number).id == second, "rejected since"
    tracker.promote(project, cycle.id, first, "promoted", "ada", "on second thoughts")
    assert reader.cycle_checkpoint(project, cycle.number).id == first


def test_the_verdict_is_stored_until_a_person_decides(reader: Reader, tracker: Tracker, project: int) -> None:
    cycle = tracker.open_cycle(project)
    first, second = (tracker.checkpoint(project, "recovered", f"run-{n}", cycle=cycle.id) for n in (1, 2))
    store_verdict(tracker, second, {"outcome": "passed"})
    (cycle_row,) = reader.cycles(project)
    assert (cycle_row.status, cycle_row.verdict) == ("open", {"outcome": "passed"})
    tracker.promote(project, cycle.id, first, "promoted", "ada", "it reads better")
    assert reader.cycles(project)[0].verdict is None, "the verdict was about the other checkpoint"


def test_running_runs_are_those_of_the_project_that_have_not_ended(
    reader: Reader, tracker: Tracker, project: int
) -> None:
    tracker.start_run(tracker.project("other", "/other", "lab"), "distill")
    ended, first, second = (tracker.start_run(project, "distill") for _ in range(3))
    tracker.finish_run(ended, "done")
    assert [run.id for run in reader.running(project)] == [second, first]


def test_a_run_that_becomes_stale_is_a_change(engine: Engine, reader: Reader, tracker: Tracker, project: int) -> None:
    other = tracker.start_run(tracker.project("other", "/other", "lab"), "distill")
    run = tracker.start_run(project, "distill")
    before = reader.changes(project)
    with engine.begin() as connection:
        connection.execute(update(Run).where(Run.id == other).values(heartbeat_at=now() - timedelta(minutes=5)))
    assert reader.changes(project) == before, "another project's run"
    with engine.begin() as connection:
        connection.execute(update(Run).where(Run.id == run).values(heartbeat_at=now() - timedelta(minutes=5)))
    stale = reader.changes(project)
    assert stale != before
    assert reader.changes(project) == stale
    tracker.step(run, 0, {"loss": 1.0})
    tracker.flush()
    assert reader.changes(project) == before, "the run was only slow"


def test_a_run_that_is_resumed_or_given_up_is_a_change(reader: Reader, tracker: Tracker, project: int) -> None:
    first, last = tracker.start_run(project, "midtrain"), tracker.start_run(project, "eval")
    tracker.finish_run(first, "failed", "no space left")
    tracker.finish_run(last, "done")  # the latest to finish, so that the times of the first decide nothing
    failed = reader.changes(project)
    tracker.resume_run(first)
    resumed = reader.changes(project)
    assert resumed != failed
    tracker.finish_run(first, "failed", "no space left")
    tracker.finish_run(tracker.start_run(project, "eval"), "done")
    failed = reader.changes(project)
    tracker.give_up(first)
    assert reader.changes(project) != failed


def test_busy_seconds_are_those_of_steps_and_evaluations(
    reader: Reader, tracker: Tracker, project: int, base: int
) -> None:
    run, idle = tracker.start_run(project, "midtrain"), tracker.start_run(project, "midtrain")
    for step in range(2):
        tracker.step(run, step, {"loss": 9.0, "rollout_seconds": 0.5, "teacher_seconds": 0.25, "update_seconds": 1.0})
    measure(tracker, base, run, {"behaviour": 0.5, "knowledge": 0.5}, random.Random(0))
    tracker.flush()
    assert reader.busy_seconds([run, idle]) == {run: pytest.approx(2 * 1.75 + 2 * 3.1)}
    assert reader.busy_seconds([]) == {}


def test_a_study_is_stored_before_it_runs_and_found_again(tracker: Tracker, reader: Reader, project: int) -> None:
    first = tracker.study(project, "length", "quick", "ab12", declaration())
    (stored,) = reader.studies(project)
    assert (stored.id, stored.hash, stored.results, stored.finished_at) == (first, "ab12", None, None)
    assert [claim["text"] for claim in stored.claims] == [claim["text"] for claim in declaration()["claims"]]
    assert tracker.study(project, "length", "quick", "ab12", {}) == first, "the first declaration stays"
    assert tracker.study(project, "length", "quick", "cd34", declaration()) != first, "a changed one is another study"
    assert reader.studies(project)[-1].declaration == declaration()


def test_arms_and_verdicts_are_stored_as_they_come(tracker: Tracker, reader: Reader, project: int) -> None:
    study = tracker.study(project, "length", "quick", "ab12", declaration())
    before = reader.changes(project)
    tracker.store_study(study, {"arms": [arm("opd", 1, 0.8)], "planned": 2, "claims": []}, done=False)
    assert reader.changes(project) != before, "an open page shows it"
    unfinished = reader.study(study)
    assert (list(unfinished.arms), unfinished.finished_at) == (["opd"], None)
    finished = reader.study(add_study(tracker, project))
    assert finished.finished_at is not None
    assert [claim["verdict"] for claim in finished.claims] == ["supported", "refuted", "cannot tell"]
    assert [entry["seed"] for entry in finished.arms["opd"]] == [1, 2, 3]


@pytest.mark.parametrize(
    ("base", "name"),
    [
        ("/home/ada/handbook/.recover/gguf/SmolLM2.Q4_1-b179c9523d0e", "SmolLM2.Q4_1.gguf"),
        ("/models/of-the-team/llama", "of-the-team/llama"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    ],
)
def test_a_base_is_named_by_its_file_its_folder_or_its_hub_id(base: str, name: str) -> None:
    assert Project(base=base).base_name == name
