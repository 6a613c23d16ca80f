import random
import re

import pytest

from dashboard.pages import cycle, overview
from dashboard.pages import cycle_list as cycles
from dashboard.ui.polling import NotFound
from tests.dashboard.page_requests import page_html, parts, refreshed
from tests.db.seeded import measure, seed


@pytest.fixture
def repaired(tracker):
    """An external fine-tune whose repair awaits a decision."""
    seeded = seed(tracker, cycles=0)
    outside = tracker.checkpoint(seeded.project, "external", "./ft")
    run = tracker.start_run(seeded.project, "distill")
    tracker.rollouts(run, 0, [{"prompt": "Say hello.", "text": "hello"}])
    checkpoint = tracker.checkpoint(seeded.project, "recovered", "run-2", parent=outside, run=run)
    measure(tracker, checkpoint, run, {"behaviour": 0.85}, random.Random(0))
    tracker.finish_run(run, "done")
    return seeded, checkpoint


def test_a_model_that_awaits_a_decision_is_shown_without_a_cycle(written, repaired):
    html = page_html(overview, written)
    assert "No cycles yet; the current model is <bdi>base</bdi>." in html
    assert "<code>recover promote <bdi>run:2</bdi></code>" in html
    assert re.search(r"run:2</bdi></a> \(instruction following 0\.\d{3}\) awaits a decision", html)
    assert "./ft" in html, "the external model is listed too"


@pytest.mark.parametrize("decision", ["promoted", "rejected"])
def test_decisions_are_shown_without_a_cycle(tracker, written, repaired, decision):
    seeded, checkpoint = repaired
    tracker.promote(seeded.project, None, checkpoint, decision, "ada <b>", "it reads <i>well</i>")
    html = page_html(overview, written)
    assert f'<span class="badge {decision}">' in html
    assert "UTC by <bdi>ada &lt;b&gt;</bdi>: <bdi>it reads &lt;i&gt;well&lt;/i&gt;</bdi>" in html
    assert ("the current model is <bdi>run:2</bdi>" in html) == (decision == "promoted")
    assert "recover promote" not in html
    for target in (
        f'"lineage?checkpoint={checkpoint}"',
        f'"compare?a={seeded.base}&amp;b={checkpoint}"',
        '"tokens?run=2"',
    ):
        assert f"href={target}" in html
    _, top, row, *_ = refreshed(written)
    assert "recover demo" not in top
    assert row["visible"] is False


def test_a_repair_that_too_few_items_decide_is_inconclusive_and_not_rejected(tracker, written, repaired):
    seeded, checkpoint = repaired
    verdict = {"passed": False, "outcome": "inconclusive", "reason": "too few items"}
    tracker.promote(seeded.project, None, checkpoint, "rejected", "gate", "too few items", verdict)
    html = page_html(overview, written)
    assert '<span class="badge inconclusive">' in html
    assert "Rejected" not in html


@pytest.mark.parametrize("page", [cycles, cycle])
def test_a_page_about_cycles_links_to_the_decisions(tracker, written, repaired, page):
    seeded, checkpoint = repaired
    tracker.promote(seeded.project, None, checkpoint, "promoted", "gate", "both bounds hold")
    with pytest.raises(NotFound, match="The overview shows repaired models and decisions") as error:
        parts(page, written)
    assert error.value.link == '<a href="./">Overview</a>'
