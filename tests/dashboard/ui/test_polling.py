import gradio as gr

from dashboard.ui import polling
from dashboard.ui.caches import MAX_RUNS, RunMetrics
from dashboard.ui.polling import NotFound
from tests.dashboard.page_requests import browser_state, dashboard, page_request
from tests.db.seeded import seed


def test_only_changed_parts_are_sent(tracker, written):
    seeded = seed(tracker, cycles=1)

    def poll(previous):
        def render(_):
            return ["the same", f"{len(written.notes(seeded.project))} notes", None]

        return polling.refresh(dashboard(written), "", 3, render, polling.project_version, previous, browser_state())

    state, *first = poll(None)
    assert first[1]["value"] == "0 notes"
    assert first[2] == gr.update(visible=False)
    tracker.note(seeded.project, "so", "ada", cycle=seeded.cycles[0])
    state, top, second, third = poll(state)
    assert (top, third) == (gr.skip(), gr.skip())
    assert second["value"] == "1 notes"
    assert poll(state) == [gr.skip()] * 4


def test_a_missing_page_keeps_its_navigation(reader):
    def render(_):
        raise NotFound("There is no such thing")

    _, top, rest = polling.refresh(
        dashboard(reader), "cycle", 2, render, polling.project_version, None, browser_state()
    )
    assert "There is no such thing" in top["value"]
    assert 'href="cycles"' in top["value"]
    assert rest == gr.update(visible=False)


def test_a_number_in_the_query_is_a_number_or_none(reader):
    numbers = [
        page_request(reader, f"?n={text}").number("n") for text in ("7", "-7", "٣", "1e3", "", "9" * 30, "7&n=8")
    ]
    assert numbers == [7, None, None, None, None, None, 8]


def test_metrics_are_read_from_the_last_step_on(tracker, written):
    seeded = seed(tracker, cycles=1, steps=5)
    run, reads = written.run(seeded.midtrain_runs[0]), []
    points = written.points
    written.points = lambda run, after: reads.append(after) or points(run, after=after)
    metrics = RunMetrics(written)
    assert [step for step, _ in metrics.series(run)["loss"]] == [0, 1, 2, 3, 4]
    assert points(run.id, names=["nothing"]) == []
    tracker.step(run.id, 5, {"loss": 1.0})
    tracker.flush()
    assert [step for step, _ in metrics.series(run)["loss"]] == [0, 1, 2, 3, 4, 5]
    tracker.step(run.id, 5, {"probe/seconds": 60.0})  # the probe comes after the step
    tracker.flush()
    series = metrics.series(run)
    assert series["probe/seconds"] == [(5, 60.0)]
    assert [step for step, _ in series["loss"]] == [0, 1, 2, 3, 4, 5]
    assert reads == [-2, 3, 4]
    for pid in range(MAX_RUNS):
        metrics.series(run.replaced(pid=-pid))
    metrics.series(run)
    assert reads[-1] == -2, "old runs are dropped from memory"


def test_steps_that_a_resumed_run_repeats_replace_those_that_were_read(tracker, written):
    project = seed(tracker, cycles=1).project
    run = tracker.start_run(project, "distill")
    metrics = RunMetrics(written)

    def losses(first, *values):
        for step, value in enumerate(values, first):
            tracker.step(run, step, {"loss": value})
        tracker.flush()
        return metrics.series(written.run(run))["loss"]

    assert losses(0, 1.0, 2.0, 3.0) == [(0, 1.0), (1, 2.0), (2, 3.0)]
    tracker.discard_steps(run, 1)
    assert losses(1, 4.0) == [(0, 1.0), (1, 4.0)]
    assert losses(2, 5.0, 6.0) == [(0, 1.0), (1, 4.0), (2, 5.0), (3, 6.0)]
