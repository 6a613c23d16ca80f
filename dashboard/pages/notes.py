"""Notes of people on a cycle or a checkpoint, and the form to add one."""

from collections.abc import Callable, Sequence

import gradio as gr
from markupsafe import Markup

from dashboard.actions import ActionError
from dashboard.ui.jinja import MAX_NOTE_LENGTH, load
from dashboard.ui.polling import BROWSER_STATE_JS, Dashboard, PageRequest, perform_action
from db.tables import Note

Subject = Callable[[PageRequest], tuple[int | None, int | None]]  # the ids of the cycle and the checkpoint of a page
SAVED = "Saved. It appears above within a few seconds."
_html = load("cycle.html")


def notes_card(notes: Sequence[Note]) -> Markup:
    return _html.notes(notes)


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

    event = {"js": BROWSER_STATE_JS, "queue": False, "api_visibility": "private"}
    button.click(save, [note, browser_state], [message, note], **event)
    return box


def _save(page: PageRequest, subject: Subject, text: str, user: str) -> str:
    cycle, checkpoint = subject(page)
    if page.actions.add_note is None or cycle is checkpoint is None:
        raise ActionError("There is nothing here to write a note about. Select a cycle or a checkpoint.")
    if not text.strip():
        raise ActionError("The note is empty. Write some text first.")
    page.actions.add_note(text, user, cycle=cycle, checkpoint=None if cycle else checkpoint)
    return SAVED
