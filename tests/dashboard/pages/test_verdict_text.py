"""Every page shows the same verdict; too few items to decide is inconclusive, not rejected."""

import pytest

from dashboard.html_report import report
from dashboard.pages import cycle, lineage, overview
from dashboard.pages import cycle_list as cycles
from dashboard.pages import cycle_summary as summaries
from dashboard.pages.cycle_summary import decided_by
from dashboard.ui.charts.cycles import over_time
from db.tables import Cycle
from tests.dashboard.page_requests import page_html
from tests.db.seeded import CYCLES, seed, verdict

BOUND = {"passed": False, "value": -0.022, "bound": -0.047, "limit": -0.03, "n": 400, "needed": 7497, "unsure": True}


def finished(status: str, **verdict) -> Cycle:
    return Cycle(number=1, status=status, verdict=verdict or None)


@pytest.fixture
def undecided(tracker, written):
    """A second cycle that the gate could not decide."""
    seeded = seed(tracker, cycles=2)
    past = CYCLES[1]
    inconclusive = verdict(past.recovered, past.damaged, False, "too few items to decide")
    inconclusive |= {"outcome": "inconclusive", "behaviour": BOUND}
    tracker.promote(
        seeded.project, seeded.cycles[1], seeded.recovered[1], "rejected", "gate", inconclusive["reason"], inconclusive
    )
    return written


@pytest.mark.parametrize("page", [overview, cycles, cycle, lineage])
def test_every_page_shows_inconclusive_and_none_rejected(undecided, page):
    html = page_html(page, undecided, "?number=2")
    assert '<span class="badge inconclusive"><span aria-hidden="true">?</span>Inconclusive</span>' in html
    assert "Rejected" not in html.replace('"rejected"', "")


def test_a_report_and_the_pages_say_how_many_prompts_would_decide_it(undecided):
    (project,) = undecided.projects()
    document = report(undecided, project, 2)
    assert "Cycle 2 not promoted: <bdi>too few items to decide</bdi>." in document
    for html in (document, page_html(overview, undecided), page_html(cycles, undecided)):
        assert "about 7,497 prompts would decide it (" in html
    assert "? </span> not decided" in page_html(cycle, undecided).replace("?</span>", "? </span>")


def test_cycles_are_found_by_how_they_ended(undecided):
    assert "1 of 2 cycles" in page_html(cycles, undecided, "?status=inconclusive")
    assert "No cycle matches" in page_html(cycles, undecided, "?status=rejected")


def test_a_rejection_by_a_person_is_shown_as_rejected(undecided, tracker):
    tracker.promote(1, 2, undecided.cycles(1)[1].recovered.checkpoint.id, "rejected", "ada", "it repeats itself")
    assert undecided.cycles(1)[1].outcome == "rejected"
    html = page_html(cycle, undecided, "?number=2")
    assert "Rejected</span>" in html
    assert "Inconclusive</span>" in html, "the gate's own decision, before it"
    assert "it repeats itself" in html


def test_the_chart_labels_an_inconclusive_end_and_draws_it_hollow(undecided):
    trail = summaries.trails(undecided.cycles(1), undecided.stages(1))[1]
    assert trail.recovered.name == "cycle 2 inconclusive"
    assert not trail.keeps(trail.recovered)
    assert "inconclusive<br>cycle 2" in over_time([trail], None)["layout"]["xaxis"]["ticktext"][-1]


RETENTION = BOUND | {"tasks": {"own_world": {"n": 300, "lost": 106, "gained": 0}}, "setting": "gate.keep_retention"}


def test_the_items_that_would_decide_it_are_those_of_the_undecided_measure():
    reason = "too few"
    verdict = {"outcome": "inconclusive", "reason": reason, "behaviour": BOUND | {"passed": True, "unsure": False}}
    undecided = finished("rejected", **verdict, retention=RETENTION | {"n": 40, "needed": 480})
    undecided.decision_reason = reason
    assert decided_by(undecided) == "about 480 items on what it knew before would decide it (40 were used)"


def test_only_a_rejection_for_lack_of_items_is_inconclusive():
    assert finished("rejected", outcome="inconclusive").outcome == "inconclusive"
    assert finished("promoted", outcome="inconclusive").outcome == "promoted", "a person decided"
    assert finished("rejected", outcome="failed").outcome == finished("rejected").outcome == "rejected"
    assert finished("open", outcome="inconclusive").outcome == "open"
