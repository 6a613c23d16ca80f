"""One prompt to several checkpoints at once, with their answers side by side."""

from collections.abc import Sequence
from typing import Any

import gradio as gr
from markupsafe import Markup

from dashboard.actions import ActionError
from dashboard.ui.html import join, load, page_title
from dashboard.ui.polling import BROWSER_STATE_JS, Dashboard, NotFound, PageRequest, perform_action, poll

MAX_CHECKPOINTS = 4
MAX_PROMPT = 8_000  # characters
_html = load("compare.html")


def page(app: gr.Blocks, dashboard: Dashboard) -> None:
    top = gr.HTML()
    with gr.Column(visible=False, elem_classes="action-box", elem_id="try-box") as box:
        checkpoints = gr.CheckboxGroup(label=f"Checkpoints, up to {MAX_CHECKPOINTS}", elem_id="try-checkpoints")
        prompt = gr.Textbox(label="Prompt", lines=3, max_length=MAX_PROMPT, elem_id="try-prompt")
        browser_state = gr.Textbox(visible=False)
        button = gr.Button("Generate", variant="primary", elem_id="try-generate")
    answers = gr.HTML(elem_id="answers")

    def generate(checkpoints: list[str], prompt: str, browser_state: str) -> str:
        return perform_action(dashboard, browser_state, lambda page: _generate(page, checkpoints, prompt))

    poll(app, dashboard, "try", [top, box, checkpoints, prompt], render)
    # Queued, one at a time: the models share this machine's memory.
    event = {"js": BROWSER_STATE_JS, "api_visibility": "private", "concurrency_limit": 1}
    button.click(generate, [checkpoints, prompt, browser_state], answers, **event)


def render(request: PageRequest) -> list[Any]:
    checkpoints = request.reader.checkpoints(request.project.id)
    if not checkpoints:
        raise NotFound
    current = request.reader.current(request.project.id)
    there = [checkpoint for checkpoint in reversed(checkpoints) if checkpoint.deleted_at is None]
    choices = [(checkpoint.reference, str(checkpoint.id)) for checkpoint in there]
    default = list(dict.fromkeys(str(checkpoint.id) for checkpoint in (checkpoints[0], current) if checkpoint))
    selected = [id for id in request.query.get("of", "").split(",") if id in dict(choices).values()]
    return [
        page_title("Try it", _html.playground_note()),
        gr.update(visible=True),
        gr.update(choices=choices, value=selected[:MAX_CHECKPOINTS] or default),
        gr.update(value=request.query.get("prompt", "")[:MAX_PROMPT], visible=True),
    ]


def _generate(request: PageRequest, checkpoints: Sequence[str], prompt: str) -> Markup:
    existing = {str(checkpoint.id) for checkpoint in request.reader.checkpoints(request.project.id)}
    selected = [int(id) for id in checkpoints if id in existing]
    if request.actions.generate is None or not selected:
        raise ActionError("Select at least one checkpoint.")
    if len(selected) > MAX_CHECKPOINTS:
        raise ActionError(f"Select at most {MAX_CHECKPOINTS} checkpoints. Each one is loaded into memory.")
    if not prompt.strip():
        raise ActionError("Write a prompt first.")
    return join(_html.model_answer(answer) for answer in request.actions.generate(selected, prompt[:MAX_PROMPT]))
