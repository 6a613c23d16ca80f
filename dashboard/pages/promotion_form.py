"""Promoting and rejecting by hand: a person decides, says why, and the record keeps both."""

from collections.abc import Callable
from typing import Literal

import gradio as gr

from dashboard.actions import ActionError, Decide
from dashboard.pages.notes import About
from dashboard.ui.polling import SEE, Asked, Site, acting

Decision = Literal["promote", "reject"]


def promoting(site: Site, about: About) -> gr.Column:
    """A reason and two buttons; hidden until the page says that there is something to decide."""
    with gr.Column(visible=False, elem_classes="doing", elem_id="decide-box") as box:
        why = gr.Textbox(label="Decide yourself: why?", max_length=2000, elem_id="decide-why")
        said, outcome = gr.Textbox(visible=False), gr.HTML()
        with gr.Row():
            promote = gr.Button("Promote: make it current", size="sm", variant="primary", elem_id="promote")
            reject = gr.Button("Reject", size="sm", elem_id="reject", visible=site.actions.reject is not None)

    def deciding(decision: Decision) -> Callable[[str, str, gr.Request], str]:
        def decide(why: str, said: str, request: gr.Request) -> str:
            return acting(site, said, lambda asked: _decided(asked, decision, why, request.username or ""))

        return decide

    def _decided(asked: Asked, decision: Decision, why: str, who: str) -> str:
        act: Decide | None = asked.actions.promote if decision == "promote" else asked.actions.reject
        _, checkpoint = about(asked)
        if act is None or checkpoint is None:
            raise ActionError("There is no checkpoint here to decide about.")
        if not why.strip():
            raise ActionError("Say why first: the record keeps the reason with the decision.")
        act(checkpoint, who, why.strip())
        return f"{decision.capitalize()}d." if decision == "promote" else "Rejected."

    for button, decision in ((promote, "promote"), (reject, "reject")):
        asking = deciding(decision)  # type: ignore[arg-type]
        button.click(asking, [why, said], outcome, js=SEE, queue=False, api_visibility="private")
    return box
