"""What people wrote about a cycle or a checkpoint, and the place to write more."""

from collections.abc import Callable, Sequence

import gradio as gr

from dashboard.actions import ActionError
from dashboard.ui.components import card, clock
from dashboard.ui.layout import LONGEST_NOTE, markdown, shown
from dashboard.ui.polling import SEE, Asked, Site, acting
from db.views import Note

About = Callable[[Asked], tuple[int | None, int | None]]
"""The cycle and the checkpoint, by id, that a page is about."""


def notes_of(notes: Sequence[Note]) -> str:
    told = "".join(
        f'<article class="said"><p class="note">{shown(note.who, 60)} · {clock(note.at)}</p>'
        f'<div class="words">{markdown(note.text)}</div></article>'
        for note in notes
    )
    return card("Notes", told or '<p class="nothing">Nobody has written anything yet.</p>')


def taking_notes(site: Site, about: About) -> gr.Column:
    """A box to write in, where the dashboard was handed a way to keep notes; hidden until the page has content."""
    with gr.Column(visible=False, elem_classes="doing", elem_id="note-box") as box:
        words = gr.Textbox(label="Write a note (Markdown)", lines=3, max_length=LONGEST_NOTE, elem_id="note-text")
        said, outcome = gr.Textbox(visible=False), gr.HTML()
        button = gr.Button("Keep this note", size="sm", elem_id="note-keep")

    def keep(text: str, said: str, request: gr.Request) -> tuple[str, object]:
        outcome = acting(site, said, lambda asked: _kept(asked, text, request.username or ""))
        return outcome, "" if "refused" not in outcome else gr.skip()

    def _kept(asked: Asked, text: str, who: str) -> str:
        cycle, checkpoint = about(asked)
        if asked.actions.note is None or cycle is checkpoint is None:
            raise ActionError("There is nothing here to write about.")
        if not text.strip():
            raise ActionError("Write some words first.")
        asked.actions.note(text, who, cycle=cycle, checkpoint=None if cycle else checkpoint)
        return "Kept; it appears above within a few seconds."

    button.click(keep, [words, said], [outcome, words], js=SEE, queue=False, api_visibility="private")
    return box
