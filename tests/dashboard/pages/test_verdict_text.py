"""How a cycle ended, said alike on every page; too few items to tell is not to have failed."""

from dataclasses import replace

import pytest

from dashboard.pages import cycle, cycles, lineage, overview
from dashboard.pages import score_summaries as story
from dashboard.pages.verdict_text import reasons
from dashboard.report import report
from dashboard.ui import charts
from db.types import now
from db.views import Cycle, Stage
from tests.dashboard.looking import words
from tests.db.seeded import CYCLES, seed, verdict

BOUND = {"passed": False, "value": -0.022, "bound": -0.047, "limit": -0.03, "n": 400, "needed": 7497, "unsure": True}
KEPT = {"passed": True, "value": 0.93, "bound": 0.93, "limit": 0.88, "n": 166, "needed": None, "unsure": False}


def ended(status: str, **said) -> Cycle:
    return Cycle(1, 1, status, None, None, said or None, now(), now(), Stage(), Stage(), Stage())


@pytest.fixture
def undecided(told):
    """A second cycle that the gate could not tell about."""
    tracker, reader = told
    seeded = seed(tracker, cycles=2)
    past = CYCLES[1]
    said = verdict(past.recovered, past.damaged, False, "too few items to tell")
    said |= {"outcome": "inconclusive", "behaviour": BOUND}
    tracker.promote(seeded.project, seeded.cycles[1], seeded.recovered[1], "rejected", "gate", said["reason"], said)
    return reader


@pytest.mark.parametrize("page", [overview, cycles, cycle, lineage])
def test_every_page_says_inconclusive_and_none_rejected(undecided, page):
    told = words(page, undecided, "?number=2")
    assert '<span class="badge inconclusive"><span aria-hidden="true">?</span>Inconclusive</span>' in told
    assert "Rejected" not in told.replace('"rejected"', "")


def test_a_report_and_the_pages_say_how_many_items_would_settle_it(undecided):
    (project,) = undecided.projects()
    mailed = report(undecided, project, 2)
    assert "Cycle 2 inconclusive" in mailed
    for told in (mailed, words(overview, undecided), words(cycles, undecided)):
        assert "about 7,497 prompts would settle it (" in told
    assert "That is too few prompts to tell." in words(overview, undecided)
    assert "7,497</span>" in words(cycle, undecided), "the gate's table has it, too"


def test_cycles_are_found_by_how_they_ended(undecided):
    assert "1 of 2 cycles" in words(cycles, undecided, "?status=inconclusive")
    assert "No cycle is like that" in words(cycles, undecided, "?status=rejected")


def test_a_person_who_rejects_is_not_said_to_be_undecided(undecided, told):
    tracker, _ = told
    tracker.promote(1, 2, undecided.cycles(1)[1].recovered.checkpoint.id, "rejected", "ada", "it repeats itself")
    told = words(cycle, undecided, "?number=2")
    assert "Rejected</span>" in told
    assert "it repeats itself" in told


def test_the_chart_names_the_ending_and_draws_it_hollow(undecided):
    trail = story.trails(undecided.cycles(1), undecided.stages(1))[1]
    assert trail.recovered.name == "cycle 2 inconclusive"
    assert not trail.keeps(trail.recovered)
    assert "inconclusive<br>cycle 2" in charts.over_time([trail], None)["layout"]["xaxis"]["ticktext"][-1]


@pytest.mark.parametrize(
    ("value", "bound", "words"),
    [
        (-0.022, -0.047, "0.022 below the clean model, at worst 0.047 below (95 %, 400 prompts)"),
        (0.0, -0.02, "level with the clean model, at worst 0.020 below"),
        (0.05, 0.01, "0.050 above the clean model, surely above it"),
    ],
)
def test_a_bound_in_a_sentence(value, bound, words):
    told = reasons(ended("promoted", behaviour=BOUND | {"value": value, "bound": bound, "passed": True}))
    assert words in told
    assert "✓" in told


def test_what_was_not_judged_and_what_earlier_cycles_lost_are_said():
    told = reasons(ended("rejected", behaviour=BOUND, knowledge=None, earlier={"1": KEPT | {"passed": False}}))
    assert "Knowledge of the documents was not measured" in told
    assert "cycle <bdi>1</bdi>'s documents is 0.930; at least 0.880" in told
    assert told.count("✕") == 1
    assert reasons(ended("open")) == ""


def test_only_what_was_rejected_for_lack_of_items_is_inconclusive():
    assert ended("rejected", outcome="inconclusive").outcome == "inconclusive"
    assert ended("promoted", outcome="inconclusive").outcome == "promoted", "a person decided"
    assert ended("rejected", outcome="failed").outcome == ended("rejected").outcome == "rejected"
    assert replace(ended("open"), verdict={"outcome": "inconclusive"}).outcome == "open"
