from dashboard.html_report import report
from dashboard.pages import cycle, lineage, overview
from tests.dashboard.page_requests import page_html
from tests.db.seeded import try_again

SHORT = {"passed": False, "value": -0.2, "bound": -0.25, "limit": -0.03, "n": 400, "needed": None, "unsure": False}


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
    assert "Next command: <code>recover promote cycle:3</code>" in html
    assert "<bdi>run:" in page_html(lineage, written)
