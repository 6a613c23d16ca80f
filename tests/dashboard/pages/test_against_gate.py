"""The pages say when the model in use was promoted against the gate, by whom and why; the form asks for a reason."""

from collections.abc import Callable
from types import ModuleType

import gradio as gr
import pytest

from dashboard.actions import Actions
from dashboard.html_report import report
from dashboard.pages import cycle, lineage, overview
from dashboard.pages.forms import promotion_form
from tests.dashboard.page_requests import browser_state, dashboard, page_html
from tests.db.seeded import seed, store_verdict

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


def click(reader, checkpoint: int, actions: Actions, name: str, reason: str) -> str:
    """The message after a click on one of the form's buttons."""
    with gr.Blocks() as app:
        promotion_form(dashboard(reader, actions=actions), lambda page: (None, checkpoint))
    handlers: dict[str, Callable[..., str]] = {
        block.fn.__name__ + app.blocks[block.targets[0][0]].elem_id: block.fn for block in app.fns.values() if block.fn
    }
    request = gr.Request(username="ada")
    return handlers[f"handle{name}"](reason, browser_state(), request)


def test_the_form_asks_for_a_reason_against_the_gate_alone(written, seeded):
    decided: list[tuple[int, str]] = []

    def decide(checkpoint: int, user: str, reason: str) -> None:
        decided.append((checkpoint, reason))

    actions = Actions(promote=decide, reject=decide)
    failed, passed = seeded.recovered[2], seeded.recovered[0]
    assert "The gate&#39;s verdict is failed. Give a reason first" in click(written, failed, actions, "promote", " ")
    assert "Give a reason first" in click(written, passed, actions, "reject", "")
    assert decided == []
    assert click(written, failed, actions, "reject", "") == "Rejected."
    assert click(written, passed, actions, "promote", "") == "Promoted."
    assert click(written, failed, actions, "promote", "reads well ") == "Promoted."
    assert decided == [(failed, ""), (passed, ""), (failed, "reads well")]
