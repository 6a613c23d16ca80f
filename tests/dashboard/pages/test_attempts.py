"""A rejected cycle has advice on its next attempt; a cycle with several attempts lists them."""

import pytest

from dashboard.html_report import report
from dashboard.pages import cycle, lineage, overview
from tests.dashboard.page_requests import page_html
from tests.db.seeded import Seeded, seed, try_again

SHORT = {"passed": False, "value": -0.2, "bound": -0.25, "limit": -0.03, "n": 400, "needed": None, "unsure": False}


@pytest.fixture
def seeded(writable_record) -> Seeded:
    """Three cycles; the last was rejected after 40 steps."""
    return seed(writable_record[0])


def test_a_rejected_cycle_says_what_to_try_next(writable_record, seeded):
    _, reader = writable_record
    (project,) = reader.projects()
    advice = "<p>Try again with more steps: <code>recover distill --teacher base --set distill.steps=80</code></p>"
    for html in (page_html(overview, reader), page_html(cycle, reader), report(reader, project, 3)):
        assert advice in html
    assert "Try again" not in page_html(cycle, reader, "?number=2"), "it was promoted"


def test_an_earlier_cycle_is_tried_again_by_the_name_of_its_checkpoint(writable_record, seeded):
    tracker, reader = writable_record
    verdict = {"passed": False, "behaviour": SHORT}
    tracker.promote(seeded.project, seeded.cycles[0], seeded.recovered[0], "rejected", "gate", "too low", verdict)
    assert "recover distill --student cycle:1/midtrained --teacher base" in page_html(cycle, reader, "?number=1")


def test_the_attempts_of_a_cycle_are_listed_with_their_scores_and_decisions(writable_record, seeded):
    _, reader = writable_record
    assert "Attempts" not in page_html(cycle, reader)
    try_again(writable_record[0], seeded)
    html = page_html(cycle, reader)
    table = html[html.index("<caption>Attempts") :].partition("</table>")[0]
    first, second = table.split("<tr>")[2:]
    assert f"<bdi>run:{seeded.distill_runs[-1]}</bdi>" in first
    assert "Rejected" in first
    assert "<bdi>cycle:3/recovered</bdi>" in second
    assert "Open" in second
    assert "0.900" in second
    assert "Next command: <code>recover promote cycle:3</code>" in html
    assert "<bdi>run:" in page_html(lineage, reader)
