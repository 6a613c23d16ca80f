"""Structure is written at once or raises; telemetry never raises and is not lost."""

import logging
import math
import random
import time
from collections.abc import Callable
from multiprocessing import get_context

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from db import RecordError
from db.engine import open_database
from db.queries import Reader
from db.tracker import Tracker
from tests.db.seeded import result


@pytest.fixture
def run(tracker: Tracker, project: int) -> int:
    return tracker.start_run(project, "distill", settings={"lr": 1e-4}, seed=3)


def eventually(condition: Callable[[], bool], seconds: float = 5) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def rename(engine: Engine, old: str, new: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))


def test_a_project_is_created_once_and_its_folder_may_move(tracker: Tracker, reader: Reader) -> None:
    first = tracker.project("handbook", "/old", "lab")
    assert tracker.project("handbook", "/new", "other") == first
    project = reader.project("handbook")
    assert (project.root, project.base) == ("/new", "lab")


def test_a_corpus_is_identified_by_path_and_hash(tracker: Tracker) -> None:
    first = tracker.corpus("docs", "aaa")
    assert tracker.corpus("docs", "aaa") == first
    assert tracker.corpus("docs", "bbb") != first


def test_cycles_are_counted_within_their_project(tracker: Tracker, project: int) -> None:
    other = tracker.project("other", "/other", "lab")
    assert [tracker.open_cycle(project).number, tracker.open_cycle(other).number] == [1, 1]
    assert tracker.open_cycle(project).number == 2


def test_only_empty_cycles_are_deleted(tracker: Tracker, reader: Reader, project: int) -> None:
    other = tracker.project("other", "/other", "lab")
    kept = tracker.open_cycle(other).id
    with_run, _, with_checkpoint, with_note, _ = (tracker.open_cycle(project).id for _ in range(5))
    tracker.start_run(project, "midtrain", with_run)
    tracker.checkpoint(project, "midtrained", "m", cycle=with_checkpoint)
    tracker.note(project, "Too long.", "me", cycle=with_note)
    tracker.delete_empty_cycles(project)
    assert [cycle.id for cycle in reader.cycles(project)] == [with_run, with_checkpoint, with_note]
    assert [cycle.id for cycle in reader.cycles(other)] == [kept]
    assert tracker.open_cycle(project).number == 5


def test_base_and_external_models_are_recorded_once(tracker: Tracker, project: int) -> None:
    base = tracker.checkpoint(project, "base", "/models/lab")
    assert tracker.checkpoint(project, "base", "/models/lab") == base
    external = tracker.checkpoint(project, "external", "/models/lab")
    assert external != base
    assert tracker.checkpoint(project, "midtrained", "run-1") != tracker.checkpoint(project, "midtrained", "run-1")


def test_an_evaluation_stores_every_item(tracker: Tracker, reader: Reader, base: int, run: int) -> None:
    row = result("behaviour", 0.75, random.Random(0), n=8)
    row["items"][0] |= {"key": 1000, "answer": "\x00", "verdicts": {"no_comma": True}}
    evaluation = tracker.evaluation(base, run, row)
    (stored,) = reader.evaluations(base)
    assert (stored.id, stored.suite, stored.scores["prompt_level_strict_acc"].value) == (evaluation, "behaviour", 0.75)
    items = reader.items(evaluation)
    assert len(items) == 8
    assert sum(bool(item.passed) for item in items) == 6
    assert (items[0].key, items[0].answer, items[0].verdicts) == ("1000", "␀", {"no_comma": True})


def test_an_incomplete_evaluation_is_not_stored(tracker: Tracker, reader: Reader, base: int) -> None:
    row = result("behaviour", 0.5, random.Random(0))
    del row["items"][3]["answer"]
    with pytest.raises(RecordError, match="lacks 'answer'"):
        tracker.evaluation(base, None, row)
    assert reader.evaluations(base) == []


def test_a_rejected_cycle_opens_again_for_another_attempt(tracker: Tracker, reader: Reader, project: int) -> None:
    cycle = tracker.open_cycle(project)
    runs = [tracker.start_run(project, "distill", cycle.id) for _ in range(2)]
    first = tracker.checkpoint(project, "recovered", "run-1", cycle=cycle.id, run=runs[0])
    tracker.promote(project, cycle.id, first, "rejected", "gate", "too low", {"passed": False, "reason": "too low"})
    second = tracker.checkpoint(project, "recovered", "run-2", cycle=cycle.id, run=runs[1])
    tracker.reopen_cycle(cycle.id)
    (row,) = reader.cycles(project)
    assert (row.status, row.closed_at, row.verdict) == ("open", None, None)
    names = {one.id: (one.reference, one.verdict) for one in reader.checkpoints(project)}
    assert names[first] == (f"run:{runs[0]}", {"passed": False, "reason": "too low"})
    assert names[second] == ("cycle:1/recovered", None)
    tracker.promote(project, cycle.id, first, "promoted", "ada", "reads well")
    assert {one.id: one.reference for one in reader.checkpoints(project)}[first] == "cycle:1/recovered"
    (row,) = reader.cycles(project)
    assert (row.status, row.verdict) == ("promoted", {"passed": False, "reason": "too low"})


@pytest.mark.parametrize(
    "write",
    [
        lambda tracker, project: tracker.open_cycle(99),
        lambda tracker, project: tracker.start_run(99, "eval"),
        lambda tracker, project: tracker.start_run(project, "dance"),
        lambda tracker, project: tracker.finish_run(99, "done"),
        lambda tracker, project: tracker.checkpoint(project, "base", "x", parent=99),
        lambda tracker, project: tracker.promote(project, None, 99, "promoted", "ada", "why not"),
        lambda tracker, project: tracker.note(project, "well", "ada", cycle=99),
        lambda tracker, project: tracker.request_cancel(99),
        lambda tracker, project: tracker.documents(99, [{"name": "a", "hash": "b", "bytes": 1}]),
        lambda tracker, project: tracker.evaluation(99, None, {"task": "ifeval"}),
    ],
)
def test_an_invalid_write_gives_one_line(
    tracker: Tracker, project: int, write: Callable[[Tracker, int], object]
) -> None:
    with pytest.raises(RecordError, match="The re") as caught:
        write(tracker, project)
    assert "\n" not in str(caught.value)


def test_a_note_needs_text_and_one_subject(tracker: Tracker, project: int) -> None:
    for subject in ({}, {"cycle": 1, "checkpoint": 1}):
        with pytest.raises(RecordError, match="about a cycle or about a checkpoint"):
            tracker.note(project, "well", "ada", **subject)
    with pytest.raises(RecordError, match="needs some text"):
        tracker.note(project, " \n", "ada", cycle=tracker.open_cycle(project).id)


def test_a_running_run_can_be_requested_to_stop(tracker: Tracker, reader: Reader, run: int) -> None:
    assert not reader.cancel_requested(run)
    tracker.request_cancel(run)
    tracker.request_cancel(run)
    assert reader.cancel_requested(run)
    tracker.finish_run(run, "interrupted")
    with pytest.raises(RecordError, match=f"Run {run} is interrupted already"):
        tracker.request_cancel(run)


def test_steps_are_written_in_the_background(tracker: Tracker, reader: Reader, run: int) -> None:
    tracker.step(run, 0, {"loss": 2.5, "kl": None, "entropy": math.nan, "ratio_max": math.inf})
    assert eventually(lambda: len(reader.points(run)) == 3)
    values = {point.name: point.value for point in reader.points(run)}
    assert (values["loss"], values["ratio_max"]) == (2.5, math.inf)
    assert math.isnan(values["entropy"])


def test_a_finished_run_has_all_its_telemetry_stored(engine: Engine, reader: Reader, project: int) -> None:
    with Tracker(engine, pause=60) as tracker:
        run = tracker.start_run(project, "midtrain")
        for step in range(50):
            tracker.step(run, step, {"loss": 1.0})
        tracker.rollouts(run, 3, [{"prompt": "a", "text": "b", "truncated": True, "reward": 0.5}])
        tokens = [["Ro", 0.3, [["Ro", 0.6]], [["Pa", 0.9]]]]
        tracker.rollouts(run, 4, [{"prompt": "a", "text": "Rome", "tokens": tokens}])
        tracker.finish_run(run, "failed", "out of memory")
        assert len(reader.points(run)) == 50
    first, second = reader.rollouts(run)
    assert (first.text, first.truncated, first.reward, first.tokens) == ("b", True, 0.5, None)
    assert second.tokens == tokens
    row = reader.run(run)
    assert (row.status, row.error) == ("failed", "out of memory")


def test_a_step_repeated_after_a_resume_replaces_the_first(tracker: Tracker, reader: Reader, run: int) -> None:
    for value in (1.0, 2.0):
        tracker.step(run, 7, {"loss": value})
        tracker.rollouts(run, 7, [{"prompt": "a", "text": str(value)}])
        tracker.flush()
    assert [point.value for point in reader.points(run)] == [2.0]
    assert [rollout.text for rollout in reader.rollouts(run)] == ["2.0"]


def test_a_run_without_telemetry_still_has_a_heartbeat(engine: Engine, reader: Reader, project: int) -> None:
    with Tracker(engine, pause=0.02, heartbeat=0.05) as tracker:
        run = tracker.start_run(project, "distill")

        def heartbeat() -> object:
            row = reader.run(run)
            return row and row.heartbeat_at

        first = heartbeat()
        assert eventually(lambda: heartbeat() != first)


def test_entries_wait_while_the_database_is_unavailable(
    engine: Engine, tracker: Tracker, reader: Reader, run: int, caplog: pytest.LogCaptureFixture
) -> None:
    rename(engine, "points", "away")
    with caplog.at_level(logging.INFO, "db"):
        for step in range(20):
            tracker.step(run, step, {"loss": float(step)})
            assert tracker.flush() is False
        rename(engine, "away", "points")
        assert tracker.flush() is True
    assert [point.value for point in reader.points(run)] == [float(step) for step in range(20)]
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "training continues" in warnings[0]
    assert "accepts entries again" in caplog.text


def test_a_refused_entry_does_not_block_the_others(
    engine: Engine, reader: Reader, project: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Tracker(engine, pause=60) as tracker:
        run = tracker.start_run(project, "distill")
        for step in range(10):
            tracker.step(run if step != 4 else 9999, step, {"loss": 0.0})
            tracker.rollouts(run, step, [{"prompt": "a", "text": "b"}])
    assert [point.step for point in reader.points(run)] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert len(reader.rollouts(run)) == 10
    assert "refused points of run 9999" in caplog.text


def test_entries_lost_at_the_end_are_reported(engine: Engine, run: int, caplog: pytest.LogCaptureFixture) -> None:
    tracker = Tracker(engine, pause=60)
    rename(engine, "points", "away")
    tracker.step(run, 0, {"loss": 1.0})
    tracker.close()
    tracker.close()
    assert caplog.text.count("could not store 1 entries") == 1


metrics = st.dictionaries(st.sampled_from(["loss", "kl", "entropy"]), st.floats(allow_nan=False), max_size=3)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.integers(0, 5), metrics), max_size=12), flush_every=st.integers(1, 4))
def test_the_last_value_of_a_metric_is_stored(
    tracker: Tracker, reader: Reader, project: int, steps: list[tuple[int, dict[str, float]]], flush_every: int
) -> None:
    run = tracker.start_run(project, "distill")
    expected: dict[tuple[int, str], float] = {}
    for count, (step, values) in enumerate(steps):
        tracker.step(run, step, values)
        expected |= {(step, name): value for name, value in values.items()}
        if count % flush_every == 0:
            tracker.flush()
    tracker.finish_run(run, "done")
    points = reader.points(run)
    assert {(point.step, point.name): point.value for point in points} == expected
    assert [point.step for point in points] == sorted(point.step for point in points)


def _write_cycles(url: str, steps: int) -> None:
    with Tracker(open_database(url), pause=0.01) as tracker:
        project = tracker.project("shared", "/shared", "lab")
        for _ in range(5):
            cycle = tracker.open_cycle(project)
            run = tracker.start_run(project, "midtrain", cycle.id)
            for step in range(steps):
                tracker.step(run, step, {"loss": 1.0, "grad_norm": 2.0})
                tracker.rollouts(run, step, [{"prompt": "a", "text": "b"}])
            tracker.finish_run(run, "done")


@pytest.mark.parametrize(("writers", "steps"), [(2, 50), pytest.param(8, 200, marks=pytest.mark.slow)])
def test_processes_that_write_at_once_lose_nothing(url: str, writers: int, steps: int) -> None:
    processes = [get_context("spawn").Process(target=_write_cycles, args=(url, steps)) for _ in range(writers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * writers
    engine = open_database(url)
    reader = Reader(engine)
    (project,) = reader.projects()
    assert [cycle.number for cycle in reader.cycles(project.id)] == list(range(1, 5 * writers + 1))
    assert [len(reader.points(run.id)) for run in reader.runs(project.id)] == [2 * steps] * 5 * writers
    assert [len(reader.rollouts(run.id)) for run in reader.runs(project.id)] == [steps] * 5 * writers
    engine.dispose()
