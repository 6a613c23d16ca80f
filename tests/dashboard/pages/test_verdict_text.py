"""Every page shows the same verdict; too few items to decide is inconclusive, not rejected."""

import pytest

from dashboard.html_report import report
from dashboard.pages import cycle, lineage, overview
from dashboard.pages import cycle_list as cycles
from dashboard.pages import cycle_summary as summaries
from dashboard.pages.cycle_summary import needed_text, reasons
from dashboard.ui.charts.cycles import over_time
from db.tables import Cycle
from tests.dashboard.page_requests import page_html
from tests.db.seeded import CYCLES, seed, verdict

BOUND = {"passed": False, "value": -0.022, "bound": -0.047, "limit": -0.03, "n": 400, "needed": 7497, "unsure": True}
KEPT = {"passed": True, "value": 0.93, "bound": 0.93, "limit": 0.88, "n": 166, "needed": None, "unsure": False}


def finished(status: str, **verdict) -> Cycle:
    return Cycle(number=1, status=status, verdict=verdict or None)


@pytest.fixture
def undecided(writable_record):
    """A second cycle that the gate could not decide."""
    tracker, reader = writable_record
    seeded = seed(tracker, cycles=2)
    past = CYCLES[1]
    inconclusive = verdict(past.recovered, past.damaged, False, "too few items to decide")
    inconclusive |= {"outcome": "inconclusive", "behaviour": BOUND}
    tracker.promote(
        seeded.project, seeded.cycles[1], seeded.recovered[1], "rejected", "gate", inconclusive["reason"], inconclusive
    )
    return reader


@pytest.mark.parametrize("page", [overview, cycles, cycle, lineage])
def test_every_page_shows_inconclusive_and_none_rejected(undecided, page):
    html = page_html(page, undecided, "?number=2")
    assert '<span class="badge inconclusive"><span aria-hidden="true">?</span>Inconclusive</span>' in html
    assert "Rejected" not in html.replace('"rejected"', "")


def test_a_report_and_the_pages_say_how_many_prompts_would_decide_it(undecided):
    (project,) = undecided.projects()
    document = report(undecided, project, 2)
    assert "Cycle 2 inconclusive" in document
    for html in (document, page_html(overview, undecided), page_html(cycles, undecided)):
        assert "about 7,497 prompts would decide it (" in html
    assert "More prompts are needed to decide." in page_html(overview, undecided)
    assert "7,497</span>" in page_html(cycle, undecided), "the gate's table has it too"


def test_cycles_are_found_by_how_they_ended(undecided):
    assert "1 of 2 cycles" in page_html(cycles, undecided, "?status=inconclusive")
    assert "No cycle matches" in page_html(cycles, undecided, "?status=rejected")


def test_a_rejection_by_a_person_is_shown_as_rejected(undecided, writable_record):
    tracker, _ = writable_record
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


@pytest.mark.parametrize(
    ("value", "bound", "text"),
    [
        (-0.022, -0.047, "0.022 below the clean model&#39;s, at most 0.047 below with 95 % confidence (400 prompts)"),
        (0.0, -0.02, "equal to the clean model&#39;s, at most 0.020 below"),
        (0.05, 0.01, "0.050 above the clean model&#39;s, at least 0.010 above with 95 % confidence"),
        (0.05, 0.0, "0.050 above the clean model&#39;s, not below with 95 % confidence"),
    ],
)
def test_a_bound_as_a_sentence(value, bound, text):
    html = reasons(finished("promoted", behaviour=BOUND | {"value": value, "bound": bound, "passed": True}))
    assert text in html
    assert "✓" in html


def test_conditions_that_were_not_judged_and_losses_of_earlier_cycles_are_shown():
    html = reasons(finished("rejected", behaviour=BOUND, knowledge=None, earlier={"1": KEPT | {"passed": False}}))
    assert "Knowledge of the documents was not measured" in html
    assert "cycle 1&#39;s documents is 0.930; the gate requires at least 0.880" in html
    assert html.count("✕") == 1
    assert reasons(finished("open")) == ""


RETENTION = BOUND | {"tasks": {"own_world": {"n": 300, "lost": 106, "gained": 0}}, "setting": "gate.keep_retention"}


def test_what_the_model_knew_before_is_judged_and_the_tasks_that_lost_are_named():
    lost = RETENTION | {"value": -0.177, "bound": -0.205, "limit": -0.05, "n": 600, "unsure": False}
    html = reasons(finished("rejected", behaviour=BOUND | {"passed": True}, retention=lost))
    assert "What it knew before is 0.177 below the clean model&#39;s (own_world 106 lost, none gained), at most" in html
    assert "0.205 below with 95 % confidence (600 items); the gate allows 0.050." in html
    assert html.count("✕") == 1
    not_measured = reasons(finished("promoted", behaviour=BOUND, retention=None))
    assert "What it knew before was not measured" in not_measured


def test_the_items_that_would_decide_it_are_those_of_the_undecided_measure():
    reason = "too few"
    verdict = {"outcome": "inconclusive", "reason": reason, "behaviour": BOUND | {"passed": True, "unsure": False}}
    undecided = finished("rejected", **verdict, retention=RETENTION | {"n": 40, "needed": 480})
    undecided.decision_reason = reason
    assert needed_text(undecided) == "about 480 items on what it knew before would decide it (40 were used)"


def test_the_share_of_instruction_following_is_named_where_it_is_the_limit():
    stricter = BOUND | {"setting": "gate.keep_behaviour"}
    assert "the gate allows 0.030 by gate.keep_behaviour." in reasons(finished("rejected", behaviour=stricter))
    assert "by gate" not in reasons(finished("rejected", behaviour=BOUND | {"setting": "gate.behaviour_margin"}))


@pytest.mark.parametrize(("verdict", "noted"), [({"learned": False}, 1), ({"learned": True}, 0), ({}, 0)])
def test_documents_that_taught_nothing_measurable_are_noted_as_the_verdict_says(verdict, noted):
    zero = KEPT | {"value": 0.0, "bound": 0.0, "limit": 0.0}  # the limit is 0 too where gate.keep_knowledge is 0
    html = reasons(finished("promoted", behaviour=BOUND, knowledge=zero, earlier={"1": zero}, **verdict))
    assert html.count("Nothing measurable was learned from them.") == noted


def test_a_value_that_fails_near_its_limit_has_enough_decimals():
    near = {"passed": False, "unsure": False}
    behaviour, knowledge = BOUND | near | {"bound": -0.0302}, KEPT | near | {"value": 0.9258, "limit": 0.9262}
    html = reasons(finished("rejected", behaviour=behaviour, knowledge=knowledge))
    assert "at most 0.0302 below with 95 % confidence (400 prompts); the gate allows 0.0300." in html
    assert "is 0.9258; the gate requires at least 0.9262." in html


def test_only_a_rejection_for_lack_of_items_is_inconclusive():
    assert finished("rejected", outcome="inconclusive").outcome == "inconclusive"
    assert finished("promoted", outcome="inconclusive").outcome == "promoted", "a person decided"
    assert finished("rejected", outcome="failed").outcome == finished("rejected").outcome == "rejected"
    assert finished("open", outcome="inconclusive").outcome == "open"


def test_prompts_that_were_left_unasked_are_not_said_to_decide_or_to_be_needed():
    bound = BOUND | {"n": 200, "of": 2000}
    text = str(reasons(finished("rejected", outcome="failed", behaviour=bound)))
    assert "200 of 2,000 prompts, asked no further, as another limit had failed" in text
    assert "which decided" not in text
    assert "needed to decide" not in text
    passed = str(reasons(finished("promoted", outcome="passed", behaviour=bound | {"passed": True, "unsure": False})))
    assert "200 of 2,000 prompts, which decided" in passed
