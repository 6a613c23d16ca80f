"""What people write: notes on a cycle or a checkpoint, and decisions; the record keeps who decided and why."""

from collections.abc import Callable, Sequence

import gradio as gr
from markupsafe import Markup

from dashboard.actions import ActionError
from dashboard.ui.html import MAX_NOTE_LENGTH, load
from dashboard.ui.polling import ACTION, Dashboard, PageRequest, perform_action
from db.tables import Decision, Note
from db.verdicts import gate_outcome, overrules_gate

Subject = Callable[[PageRequest], tuple[int | None, int | None]]  # the ids of the cycle and the checkpoint of a page
SAVED = "Saved. It appears above within a few seconds."
notes_card: Callable[[Sequence[Note]], Markup] = load("cycle.html").notes


def note_form(dashboard: Dashboard, subject: Subject) -> gr.Column:
    """A text box and a button, hidden until the page shows them."""
    with gr.Column(visible=False, elem_classes="action-box", elem_id="note-box") as box:
        note = gr.Textbox(label="Write a note (Markdown)", lines=3, max_length=MAX_NOTE_LENGTH, elem_id="note-text")
        browser_state, message = gr.Textbox(visible=False), gr.HTML()
        button = gr.Button("Save note", size="sm", elem_id="note-save")

    def save(text: str, browser_state: str, request: gr.Request) -> tuple[str, object]:
        user = request.username or ""
        result = perform_action(dashboard, browser_state, lambda page: _save(page, subject, text, user))
        return result, "" if result == SAVED else gr.skip()

    button.click(save, [note, browser_state], [message, note], **ACTION)
    return box


def _save(page: PageRequest, subject: Subject, text: str, user: str) -> str:
    cycle, checkpoint = subject(page)
    if page.actions.add_note is None or cycle is checkpoint is None:
        raise ActionError("There is nothing here to write a note about. Select a cycle or a checkpoint.")
    if not text.strip():
        raise ActionError("The note is empty. Write some text first.")
    page.require_shown("cycle", cycle)
    page.actions.add_note(text, user, cycle=cycle, checkpoint=None if cycle else checkpoint)
    return SAVED


def promotion_form(dashboard: Dashboard, subject: Subject) -> gr.Column:
    """A reason and two buttons, hidden until the page has something to decide."""
    with gr.Column(visible=False, elem_classes="action-box", elem_id="decide-box") as box:
        label = "Your decision: reason (needed against the gate's verdict)"
        reason = gr.Textbox(label=label, max_length=2000, elem_id="decide-reason")
        browser_state, message = gr.Textbox(visible=False), gr.HTML()
        with gr.Row():
            promote = gr.Button("Promote: make it current", size="sm", variant="primary", elem_id="promote")
            reject = gr.Button("Reject", size="sm", elem_id="reject")

    def handler(decision: Decision) -> Callable[[str, str, gr.Request], str]:
        def handle(reason: str, browser_state: str, request: gr.Request) -> str:
            user = request.username or ""
            return perform_action(dashboard, browser_state, lambda page: _decide(page, subject, reason, user, decision))

        return handle

    promote.click(handler("promoted"), [reason, browser_state], message, **ACTION)
    reject.click(handler("rejected"), [reason, browser_state], message, **ACTION)
    return box


def _decide(page: PageRequest, subject: Subject, reason: str, user: str, decision: Decision) -> str:
    _, checkpoint = subject(page)
    if page.actions.decide is None or checkpoint is None:
        raise ActionError("There is no checkpoint here to decide about. Select one.")
    page.require_shown("checkpoint", checkpoint)
    candidate = page.reader.checkpoint(checkpoint)
    if candidate and overrules_gate(decision, candidate.verdict) and not reason.strip():
        outcome = gate_outcome(candidate.verdict)
        raise ActionError(f"The gate's verdict is {outcome}. Give a reason first: it is stored with the decision.")
    page.actions.decide(checkpoint, user, reason.strip(), decision)
    return f"{decision.capitalize()}."
