import random
import re
from datetime import timedelta

import gradio as gr
import pytest
from sqlalchemy import update

from dashboard.actions import ActionError, Actions
from dashboard.pages import cycle as cycle_page
from dashboard.pages import cycle_list, live_run, overview
from dashboard.pages import cycle_summary as summaries
from dashboard.ui import html as formats
from dashboard.ui.caches import RunMetrics
from dashboard.ui.charts.cycles import Level, Mark, Trail, over_time
from db.column_types import now
from db.tables import Run, RunInputs
from tests.dashboard.page_requests import page_html, page_request, refreshed
from tests.db.seeded import measure, result, seed


def trails_of(reader, project):
    return summaries.trails(reader.cycles(project), reader.stages(project))


def test_a_headline_says_how_the_last_cycle_went(reader):
    _, top, row, *_ = refreshed(reader)
    text = " ".join(re.sub(r"<[^>]*>", " ", top).split())
    title = "Cycle 3 not promoted: instruction following and what it knew before are short of their limits ."
    lines = (
        "instruction following 0.925 → 0.225 → 0.800 (clean 0.900) limit 0.870, with 95 % at least 0.780 ✕ missed",
        "new knowledge 0.050 → 0.950 → 0.900 limit 0.874 ✓ met",
        "earlier cycles 0.800 → 0.850",
        "what it knew before 0.850 → 0.400 → 0.700 (clean 0.950) limit 0.900, with 95 % at least 0.680 ✕ missed",
        "What was lost and gained instruction following 40 prompts new knowledge 40 items what it knew before "
        "40 items arithmetic: 10 lost, none gained",
    )
    for line in (title, *lines):
        assert line in text
    details = top.index("<details><summary>What was lost and gained</summary>")
    assert details < top.index("none gained") < top.index("</details>"), "behind a click"
    assert "shares of 40 instruction prompts, 40 questions about the documents, 80 questions about earlier" in top
    assert "and 40 items on what it knew before" in top
    assert row["visible"] is True


def test_the_chart_over_time_has_the_drift_of_each_checkpoint_once_it_was_measured(tracker, written, seeded):
    assert "Drift" not in page_html(overview, written)
    measured = [(seeded.midtrained[0], 0.1), (seeded.midtrained[0], 0.5)]  # the latest counts
    for checkpoint, kl in (*measured, (seeded.recovered[0], 0.25), (seeded.recovered[1], 0.75)):
        drift = {"task": "drift", "suite": "drift", "data": "own prompts", "seconds": 1.0}
        tracker.evaluation(checkpoint, None, drift | {"metrics": {"kl_from_clean": {"value": kl, "n": 128}}})
    assert "Drift, own replies" in (html := page_html(overview, written))
    assert "Drift, new task" not in html, "it was not measured, as where no documents are kept"
    first, second, _ = summaries.trails(written.cycles(1), written.stages(1), written.drift(1))
    values = [[mark.level("kl_from_clean") for mark in trail.marks] for trail in (first, second)]
    assert values == [[Level(0.0), Level(0.5), Level(0.25)], [Level(0.25), None, Level(0.75)]]


def test_a_rejection_against_the_gate_is_not_explained_by_its_limits(reader):
    verdict = {"passed": True, "reason": "every limit is met"}
    cycle = reader.cycles(1)[-1].replaced(verdict=verdict, decision_reason="it has not learned cycle 4")
    text = "Cycle 3 not promoted, although it passed the gate: <bdi>it has not learned cycle 4</bdi>"
    assert str(summaries.headline(cycle)) == text


def test_a_rejection_without_a_verdict_on_the_end_of_the_cycle_has_its_own_reason(tracker, written, seeded):
    """As that of the demo's first part, which is not distilled."""
    opened = tracker.open_cycle(seeded.project)
    damaged = tracker.checkpoint(seeded.project, "midtrained", "m", parent=seeded.base, cycle=opened.id)
    tracker.promote(seeded.project, opened.id, damaged, "rejected", "ada", "documents alone, for comparison")
    assert "Cycle 4 not promoted: <bdi>documents alone, for comparison</bdi>" in page_html(overview, written)


def test_while_a_cycle_is_open_the_last_finished_one_is_shown_too(tracker, written, seeded):
    assert "Last finished" not in refreshed(written)[1], "the title is about that one"
    tracker.open_cycle(seeded.project)
    top = refreshed(written)[1]
    before = top[top.index("Last finished") :]
    assert "Rejected</span> the previous model stays current." in before
    assert "0.925 → 0.225 → 0.800" in before
    assert "limit 0.870" in before


def test_key_numbers_and_the_table_of_cycles(reader):
    _, top, *_, table = refreshed(reader)
    assert "cycle:2" in top
    assert "Forgotten after cycle 3" in top
    assert "of the 36 prompts the clean model followed" in top
    assert "82 %" in top  # (0.80 - 0.225) of the (0.925 - 0.225) that were lost
    assert "94 %" in top
    assert "74 %" in top
    assert "0.700 of the clean model&#39;s 0.950" in top
    assert "40 steps of mid-training, 40 steps of distillation" in top
    assert re.findall(r">Cycle (\d+)</a></th>", table) == ["3", "2", "1"], "the newest first"


def test_nothing_is_rendered_again_until_the_record_changes(tracker, written, seeded):
    first, *_ = refreshed(written)
    assert refreshed(written, first) == [gr.skip()] * 6
    assert refreshed(written, first, dark=True) != [gr.skip()] * 6
    cycle = tracker.open_cycle(seeded.project)
    later, top, *_ = refreshed(written, first)
    assert later != first
    assert "Cycle 4 is under way." in top
    run = tracker.start_run(seeded.project, "midtrain", cycle.id)
    later, top, *_ = refreshed(written, later)
    assert "Mid-training is running, first started" in top
    tracker.finish_run(run, "failed", "out of memory")
    _, top, *_ = refreshed(written, later)
    assert "running" not in top


def test_an_empty_record_says_what_to_run(written):
    _, top, row, *_ = refreshed(written)
    assert "<pre>recover demo\nrecover dashboard --project recover-demo</pre>" in top
    assert "<pre>recover midtrain --docs ./corpus</pre>" in top
    assert row["visible"] is False


def test_one_project_of_several(tracker, written):
    seed(tracker, "first", cycles=1)
    seed(tracker, "second", cycles=2)
    assert "Cycle 1" in refreshed(written, project="first")[1]
    assert "Cycle 2" in refreshed(written)[1]
    assert "No cycles yet" in refreshed(written, project="third")[1]


def test_a_cycle_after_a_rejected_one_starts_at_the_last_promoted(tracker, written):
    seeded = seed(tracker, cycles=4)  # the third is rejected
    second, fourth = (trails_of(written, seeded.project)[index] for index in (1, 3))
    assert fourth.start.level("behaviour") == second.recovered.level("behaviour")
    assert fourth.start.name == "before cycle 4"


def test_a_cycle_that_mid_trains_starts_at_the_current_checkpoint(tracker, written):
    seeded = seed(tracker, cycles=2)
    cycle = tracker.open_cycle(seeded.project)
    tracker.start_run(seeded.project, "midtrain", cycle.id)
    current = written.current(seeded.project)
    *_, second, third = summaries.trails(
        written.cycles(seeded.project), written.stages(seeded.project), current=current
    )
    assert third.start.name == "before cycle 3"
    assert third.start.level("behaviour") == second.recovered.level("behaviour")
    assert "What it knew before, new start" not in page_html(overview, written), (
        "no line of the chart leads back to the clean model"
    )
    assert 'data-value="0.925"' in page_html(cycle_list, written).partition(">Cycle 2<")[0]


def test_a_killed_evaluation_does_not_hide_the_live_run(tracker, written, seeded, engine):
    cycle = tracker.open_cycle(seeded.project)
    live = tracker.start_run(seeded.project, "midtrain", cycle.id)
    killed = tracker.start_run(seeded.project, "eval")  # of `recover eval`, outside any cycle
    with engine.begin() as connection:
        connection.execute(update(Run).where(Run.id == killed).values(heartbeat_at=now() - timedelta(minutes=5)))
    assert [run.id for run in page_request(written).running] == [live, killed]
    assert "Mid-training in" in page_html(live_run, written)
    top = refreshed(written)[1]
    assert "Mid-training is running" in top
    assert "seems to have ended" not in top


def test_a_cycle_may_start_from_a_model_repaired_outside_any_cycle(tracker, written):
    seeded, rng = seed(tracker, cycles=0), random.Random(0)
    outside = tracker.checkpoint(seeded.project, "external", "./ft", parent=seeded.base)
    repaired = tracker.checkpoint(seeded.project, "recovered", "run-2", parent=outside)
    measure(tracker, repaired, None, {"behaviour": 0.85}, rng)
    tracker.promote(seeded.project, None, repaired, "promoted", "ada", "good enough")
    cycle = tracker.open_cycle(seeded.project)
    damaged = tracker.checkpoint(seeded.project, "midtrained", "run-3", parent=repaired, cycle=cycle.id)
    measure(tracker, damaged, None, {"behaviour": 0.5}, rng)
    (trail,) = trails_of(written, seeded.project)
    assert (trail.start.name, trail.start.level("behaviour").value) == ("before cycle 1", 0.85)
    top = refreshed(written)[1]
    assert "<b>0.850 → 0.500</b>" in top
    assert "(clean 0.900)" in top
    assert over_time([trail], None)["layout"]["xaxis"]["ticktext"][0] == "before<br>cycle 1"


@pytest.mark.parametrize(
    ("mix", "shown"), [({"answers": 0.0, "texts": 0.0}, "alone"), ({"answers": 0.3}, "in a mix"), (None, "")]
)
def test_the_table_says_whether_the_documents_were_read_alone(tracker, written, mix, shown):
    project = tracker.project("notes", "/notes", "base")
    cycle = tracker.open_cycle(project)
    tracker.start_run(project, "midtrain", cycle.id, inputs=RunInputs(mix=mix))
    text = page_html(cycle_list, written)
    assert [word for word in ("alone", "in a mix") if f"<small>{word}</small>" in text] == ([shown] if shown else [])


def test_where_nothing_was_distilled_the_axis_names_the_start_of_the_next_cycle():
    clean, damaged = (Mark(name, {"behaviour": Level(value)}) for name, value in (("clean", 0.9), ("", 0.5)))
    trails = [Trail(1, "rejected", clean, damaged), Trail(2, "promoted", clean, damaged, clean)]
    ticks = over_time(trails, clean)["layout"]["xaxis"]["ticktext"]
    assert ticks == [
        "clean<br> ",
        "mid-trained<br>cycle 1",
        "clean<br> ",
        "mid-trained<br>cycle 2",
        "recovered<br>cycle 2",
    ]


def test_a_cycle_may_start_from_a_mid_trained_model_that_a_person_promoted(tracker, written):
    seeded = seed(tracker, cycles=1)
    tracker.promote(
        seeded.project, None, seeded.midtrained[0], "promoted", "ada", "instruction following does not matter here"
    )
    cycle = tracker.open_cycle(seeded.project)
    tracker.checkpoint(seeded.project, "midtrained", "run-9", parent=seeded.midtrained[0], cycle=cycle.id)
    first, second = trails_of(written, seeded.project)
    assert second.start.level("behaviour") == first.damaged.level("behaviour")
    assert (first.start.name, second.start.name) == ("clean", "before cycle 2")


def test_the_current_checkpoint_shows_its_promotion_not_a_rejection(tracker, written):
    seeded = seed(tracker, cycles=1)
    tracker.promote(seeded.project, None, seeded.recovered[0], "rejected", "ben", "it lisps")
    top = refreshed(written)[1]
    assert "by <bdi>gate</bdi>" in top
    assert "by <bdi>ben</bdi>" not in top


@pytest.mark.parametrize(
    ("task", "metric", "named", "beside_prompts"),
    [
        ("cloze", "recall", "shares of {}.", "{} and {}."),
        ("answers", "likelihood", "mid-training; {}.", "{}; {}."),  # a likelihood is no share
    ],
)
def test_what_was_asked_in_place_of_questions_is_named(tracker, written, seeded, task, metric, named, beside_prompts):
    items = f"40 {overview.ITEMS_BY_TASK[task]}"
    asked = result("knowledge", 0.5, random.Random(0)) | {"task": task}
    asked["metrics"] = {metric: asked["metrics"]["match"]}
    cycle = tracker.open_cycle(seeded.project)
    checkpoint = tracker.checkpoint(seeded.project, "midtrained", "m", parent=seeded.base, cycle=cycle.id)
    tracker.evaluation(checkpoint, None, asked)
    top = refreshed(written)[1]
    assert named.format(items) in top
    assert "questions about the documents" not in top.partition("Last finished")[0]
    tracker.evaluation(checkpoint, None, result("behaviour", 0.5, random.Random(0), n=20))
    assert f"shares of {beside_prompts.format('40 → 20 instruction prompts', items)}" in refreshed(written)[1]


@pytest.mark.parametrize("end", ["interrupted", "failed", None])
def test_a_stopped_cycle_names_the_command_that_resumes_it(tracker, written, seeded, monkeypatch, end):
    cycle = tracker.open_cycle(seeded.project)
    finished = tracker.start_run(seeded.project, "midtrain", cycle.id)
    checkpoint = tracker.checkpoint(seeded.project, "midtrained", "m", parent=seeded.base, run=finished, cycle=cycle.id)
    measure(tracker, checkpoint, finished, {"behaviour": 0.5}, random.Random(0))
    tracker.finish_run(finished, "done")
    pages, distil = [overview, cycle_page], "Next command: <code>recover distill --teacher base</code>"
    assert all(distil in page_html(page, written) for page in pages)
    stopped = tracker.start_run(seeded.project, "distill", cycle.id)
    assert all("Next command" not in page_html(page, written) for page in pages), "it is running"
    if end:
        tracker.finish_run(stopped, end)
    else:
        monkeypatch.setattr("db.queries.STALE_SECONDS", 0.001)  # its last heartbeat is older than that
    assert all("Next command: <code>recover resume</code>" in page_html(page, written) for page in pages)
    tracker.promote(seeded.project, None, seeded.base, "promoted", "ada", "back to it")
    assert all("Next command: <code>recover status</code>" in page_html(page, written) for page in pages), "it says why"
    tracker.give_up(stopped)
    assert all(distil in page_html(page, written) for page in pages)


def test_the_time_between_an_interruption_and_its_resume_is_not_counted(tracker, written):
    seeded, metrics = seed(tracker, cycles=0), RunMetrics(written)
    cycle = tracker.open_cycle(seeded.project)
    run = tracker.start_run(seeded.project, "midtrain", cycle.id)

    def cost():
        (only,), runs = written.cycles(seeded.project), written.runs(seeded.project)
        return summaries.cost(only, runs, metrics.work_seconds(runs)).time

    tracker.step(run, 0, {"loss": 1.0, "rollout_seconds": 2.0, "teacher_seconds": 1.0, "update_seconds": 1.0})
    tracker.finish_run(run, "interrupted")
    assert cost() == timedelta(seconds=4)
    tracker.resume_run(run)
    assert cost() is None, "unknown until it ends"
    for step in (0, 1):  # the first once more: it was not saved
        tracker.step(run, step, {"loss": 1.0, "rollout_seconds": 2.0, "teacher_seconds": 1.0, "update_seconds": 2.0})
    checkpoint = tracker.checkpoint(seeded.project, "midtrained", "m", parent=seeded.base, run=run, cycle=cycle.id)
    measure(tracker, checkpoint, run, {"behaviour": 0.5}, random.Random(0))
    tracker.finish_run(run, "done")
    assert cost() == timedelta(seconds=13.1)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (0.2, "under 1 s"), (3600, "1 h")])
def test_short_and_round_durations(seconds, text):
    assert formats.duration(timedelta(seconds=seconds)) == text


def test_the_live_view_of_a_watched_training_does_not_take_its_last_reading_for_the_present_step(tracker, written):
    project = tracker.project("lab", "/models/lab", "/work")
    run = tracker.start_run(project, "midtrain", steps=2000, inputs=RunInputs(stage="watched"))
    assert "no reading yet" in page_html(live_run, written)
    for step in (20, 60):
        tracker.step(run, step, {"forgetting/kl_instructions": step / 100})
    tracker.flush()
    html = page_html(live_run, written)
    assert "last reading after step 60 of 2000" in html
    assert " left of this run" not in html
    assert "KL from clean, instructions" in html
    request = page_request(written, actions=Actions(cancel=lambda run: None))
    with pytest.raises(ActionError, match="`recover resume` does not continue it"):
        live_run._stop(request, confirmed=False)


def test_what_a_closed_cycle_left_out_is_not_expected(tracker, written):
    project = tracker.project("x", "/x", "b")
    cycle, _ = tracker.open_cycle(project)
    checkpoint = tracker.checkpoint(project, "midtrained", "m", parent=tracker.checkpoint(project, "base", "/b"))
    assert page_html(overview, written).count("not measured yet") == 4
    tracker.promote(project, cycle, checkpoint, "rejected", "me", "a mistake")
    html = page_html(overview, written)
    assert (html.count("not measured"), html.count("not measured yet")) == (4, 0)
    discarded, _ = tracker.open_cycle(project)
    tracker.give_up(tracker.start_run(project, "midtrain", discarded))
    assert "not measured yet" not in page_html(cycle_page, written)


def test_a_cycle_that_was_discarded_before_its_first_checkpoint_is_not_under_way(tracker, written, seeded):
    cycle, number = tracker.open_cycle(seeded.project)
    run = tracker.start_run(seeded.project, "midtrain", cycle)
    assert f"Cycle {number} is under way" in page_html(overview, written)
    tracker.give_up(run)
    html = page_html(overview, written)
    assert "is under way" not in html
    assert f"Cycle {number - 1} not promoted" in html
    page = page_html(cycle_page, written)
    assert f"Cycle {number} was discarded" in page
    for shown in (page, page_html(cycle_list, written, "?status=discarded")):
        assert 'class="badge discarded"' in shown
        assert 'class="badge open"' not in shown
