from types import ModuleType

import gradio as gr
import pytest

from dashboard.actions import Actions
from dashboard.html_report import report
from dashboard.pages import cycle, lineage, overview
from dashboard.pages import cycle_list as cycles
from dashboard.pages import cycle_summary as summaries
from dashboard.pages.cycle_summary import decided_by
from dashboard.pages.forms import promotion_form
from dashboard.ui.charts.cycles import over_time
from db.tables import Cycle
from tests.dashboard.page_requests import browser_state, click_handlers, dashboard, page_html
from tests.db.seeded import CYCLES, seed, store_verdict, try_again, verdict

BOUND = {"passed": False, "value": -0.022, "bound": -0.047, "limit": -0.03, "before": 0.4, "n": 400}
BOUND |= {"needed": 7497, "unsure": True}


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


SHORT = {"passed": False, "value": -0.2, "bound": -0.25, "limit": -0.03, "before": 0.4, "n": 400}


def test_a_rejected_cycle_says_what_to_try_next(written, seeded):
    (project,) = written.projects()
    command = "recover distill --teacher base --set distill.steps=80 --set distill.texts=0.2"
    advice = f"<p>Try again with more steps and rows of texts by the base: <code>{command}</code></p>"
    for html in (page_html(overview, written), page_html(cycle, written), report(written, project, 3)):
        assert advice in html
    assert "Try again" not in page_html(cycle, written, "?number=2"), "it was promoted"


def test_an_earlier_cycle_is_tried_again_by_the_name_of_its_checkpoint(tracker, written, seeded):
    verdict = {"passed": False, "behaviour": SHORT}
    tracker.promote(seeded.project, seeded.cycles[0], seeded.recovered[0], "rejected", "gate", "too low", verdict)
    assert "recover distill --student cycle:1/midtrained --teacher base" in page_html(cycle, written, "?number=1")


def test_the_attempts_of_a_cycle_are_listed_with_their_scores_and_decisions(tracker, written, seeded):
    assert "Attempts" not in page_html(cycle, written)
    try_again(tracker, seeded)
    html = page_html(cycle, written)
    table = html[html.index("<caption>Attempts") :].partition("</table>")[0]
    first, second = table.split("<tr>")[2:]
    assert f"<bdi>run:{seeded.distill_runs[-1]}</bdi>" in first
    assert "Rejected" in first
    assert "<bdi>cycle:3/recovered</bdi>" in second
    assert "Open" in second
    assert "0.900" in second
    assert "Next command: <code>recover distill --teacher base</code>" in html
    assert "<bdi>run:" in page_html(lineage, written)
    assert "All began from the same mid-trained checkpoint." in html
    tracker.checkpoint(seeded.project, "recovered", "run-10", parent=seeded.recovered[-1], cycle=seeded.cycles[-1])
    assert "All began from" not in page_html(cycle, written), "the third one went on from the first"


SENTENCE = "Promoted against the gate&#39;s verdict (failed) by <bdi>ada &lt;b&gt;</bdi> on "
REASON = "<bdi>read fifty &lt;i&gt;answers&lt;/i&gt;</bdi>"


@pytest.mark.parametrize("page", [overview, cycle])
def test_pages_say_that_the_gate_was_overruled(tracker, written, page: ModuleType, seeded):
    assert "against the gate" not in page_html(page, written)
    tracker.promote(1, seeded.cycles[2], seeded.recovered[2], "promoted", "ada <b>", "read fifty <i>answers</i>")
    (project,) = written.projects()
    for html in (page_html(page, written), report(written, project, 3)):
        assert SENTENCE in html
        assert REASON in html
    assert SENTENCE in page_html(lineage, written, f"?checkpoint={seeded.recovered[2]}")


def test_a_repaired_model_that_overrules_the_gate_is_marked(tracker, written):
    seeded = seed(tracker, cycles=0)
    checkpoint = tracker.checkpoint(seeded.project, "recovered", "run-2")
    store_verdict(tracker, checkpoint, {"passed": False, "outcome": "failed"})
    tracker.promote(seeded.project, None, checkpoint, "promoted", "ada <b>", "read fifty <i>answers</i>")
    assert SENTENCE in page_html(overview, written)


def test_the_form_asks_for_a_reason_against_the_gate_alone(written, seeded):
    decided: list[tuple[int, str, str]] = []

    def decide(checkpoint: int, user: str, reason: str, decision: str) -> None:
        decided.append((checkpoint, reason, decision))

    def click(checkpoint: int, name: str, reason: str) -> str:
        """The message after a click on one of the form's buttons."""
        subject[:] = [checkpoint]
        return handlers[name](reason, browser_state(), gr.Request(username="ada"))

    subject = list[int]()
    with gr.Blocks() as app:
        promotion_form(dashboard(written, actions=Actions(decide=decide)), lambda page: (None, *subject))
    handlers = click_handlers(app)
    failed, passed = seeded.recovered[2], seeded.recovered[0]
    assert "The gate&#39;s verdict is failed. Give a reason first" in click(failed, "promote", " ")
    assert "Give a reason first" in click(passed, "reject", "")
    assert decided == []
    assert click(failed, "reject", "") == "Rejected."
    assert click(passed, "promote", "") == "Promoted."
    assert click(failed, "promote", "reads well ") == "Promoted."
    assert decided == [(failed, "", "rejected"), (passed, "", "promoted"), (failed, "reads well", "promoted")]
