"""One prompt to several checkpoints at once, their answers side by side."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from dashboard.actions import ActionError, Answer
from dashboard.ui.components import card, tick
from dashboard.ui.layout import shown
from dashboard.ui.polling import SEE, Asked, NotThere, Site, acting, follow

MOST = 4
LONGEST = 8_000


def page(app: gr.Blocks, site: Site) -> None:
    top = gr.HTML()
    with gr.Column(visible=False, elem_classes="doing", elem_id="try-box") as box:
        whom = gr.CheckboxGroup(label=f"Checkpoints, up to {MOST}", elem_id="try-whom")
        prompt = gr.Textbox(label="Prompt", lines=3, max_length=LONGEST, elem_id="try-prompt")
        said = gr.Textbox(visible=False)
        button = gr.Button("Ask them", variant="primary", elem_id="try-ask")
    answers = gr.HTML(elem_id="answers")

    def ask(whom: list[str], prompt: str, said: str) -> str:
        return acting(site, said, lambda asked: _asked(asked, whom, prompt))

    follow(app, site, "try", [top, box, whom, prompt], fill)
    # Queued, one at a time: the models share this machine's memory.
    button.click(ask, [whom, prompt, said], answers, js=SEE, api_visibility="private", concurrency_limit=1)


def fill(asked: Asked) -> list[Any]:
    checkpoints = asked.reader.checkpoints(asked.project.id)
    if not checkpoints:
        raise NotThere
    current = asked.reader.current(asked.project.id)
    choices = [(one.reference, str(one.id)) for one in reversed(checkpoints)]
    usual = [str(one.id) for one in (checkpoints[0], current) if one]
    chosen = [id for id in asked.query.get("of", "").split(",") if id in dict(choices).values()]
    return [
        '<section class="section"><h1>Try it</h1><p class="note">The models run on the machine that serves this page. '
        "The first answer of each takes longer: it has to be loaded. Where a prompt is one of the evaluations', its "
        "instructions are ticked.</p></section>",
        gr.update(visible=True),
        gr.update(choices=choices, value=chosen[:MOST] or list(dict.fromkeys(usual))),
        asked.query.get("prompt", "")[:LONGEST],
    ]


def _asked(asked: Asked, whom: Sequence[str], prompt: str) -> str:
    known = {str(one.id) for one in asked.reader.checkpoints(asked.project.id)}
    chosen = [int(id) for id in whom if id in known]
    if asked.actions.generate is None or not chosen:
        raise ActionError("Choose at least one checkpoint.")
    if len(chosen) > MOST:
        raise ActionError(f"Choose at most {MOST} checkpoints: each is a model in this machine's memory.")
    if not prompt.strip():
        raise ActionError("Write a prompt first.")
    return "".join(_answer(answer) for answer in asked.actions.generate(chosen, prompt[:LONGEST]))


def _answer(answer: Answer) -> str:
    ticks = " ".join(tick(yes, shown(name, 60)) for name, yes in answer.followed)
    said = f'<p class="text">{shown(answer.text, 20_000)}</p>{ticks}'
    return card(shown(answer.reference, 100), said, f"{answer.seconds:.1f} s")
