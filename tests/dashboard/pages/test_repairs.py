"""A project that repairs models from elsewhere and has no cycle: who decided what is said all the same."""

import random
import re

import pytest

from dashboard.pages import cycle, cycles, overview
from dashboard.ui.polling import NotThere
from tests.dashboard.looking import content, refreshed, words
from tests.db.seeded import measure, seed


@pytest.fixture
def repaired(told):
    """A fine-tune from elsewhere whose repair waits for a decision."""
    tracker, reader = told
    seeded = seed(tracker, cycles=0)
    outside = tracker.checkpoint(seeded.project, "external", "./ft")
    run = tracker.start_run(seeded.project, "distill")
    tracker.rollouts(run, 0, [{"prompt": "Say hello.", "text": "hello"}])
    made = tracker.checkpoint(seeded.project, "recovered", "run-2", parent=outside, run=run)
    measure(tracker, made, run, {"behaviour": 0.85}, random.Random(0))
    tracker.finish_run(run, "done")
    return tracker, reader, seeded, made


def test_what_waits_for_a_decision_is_said_without_a_cycle(repaired):
    _, reader, _, _ = repaired
    told = words(overview, reader)
    assert "No cycle yet; in use is <bdi>base</bdi>." in told
    assert "<code>recover promote <bdi>run:2</bdi></code>" in told
    assert re.search(r"run:2</bdi></a> \(instruction following 0\.\d{3}\) waits for a decision", told)
    assert "./ft" in told, "what was repaired stands beside it"


@pytest.mark.parametrize("decision", ["promoted", "rejected"])
def test_who_decided_what_and_why_is_said_without_a_cycle(repaired, decision):
    tracker, reader, seeded, made = repaired
    tracker.promote(seeded.project, None, made, decision, "ada <b>", "it reads <i>well</i>")
    told = words(overview, reader)
    assert f'<span class="badge {decision}">' in told
    assert "UTC by <bdi>ada &lt;b&gt;</bdi>: <bdi>it reads &lt;i&gt;well&lt;/i&gt;</bdi>" in told
    assert ("in use is <bdi>run:2</bdi>" in told) == (decision == "promoted")
    assert "recover promote" not in told
    for way in (f'"lineage?checkpoint={made}"', f'"compare?a={seeded.base}&amp;b={made}"', '"tokens?run=2"'):
        assert f"href={way}" in told
    _, top, row, *_ = refreshed(reader)
    assert "recover demo" not in top
    assert row["visible"] is False


@pytest.mark.parametrize("page", [cycles, cycle])
def test_a_page_about_cycles_leads_to_the_decision(repaired, page):
    tracker, reader, seeded, made = repaired
    tracker.promote(seeded.project, None, made, "promoted", "gate", "both bounds hold")
    with pytest.raises(NotThere, match=r"No cycle on record yet.*>The overview</a> says"):
        content(page, reader)
