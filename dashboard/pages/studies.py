"""All studies: what they claim, the verdicts, and the intervals beside what the sources report."""

from typing import Any

import gradio as gr
from markupsafe import Markup

from dashboard.pages import study_parts as parts
from dashboard.ui.components import card, links, page_title
from dashboard.ui.jinja import join, link
from dashboard.ui.polling import Dashboard, NotFound, PageRequest, poll
from db.tables import Study


def page(app: gr.Blocks, dashboard: Dashboard) -> None:
    poll(app, dashboard, "studies", [gr.HTML(), gr.HTML(elem_id="studies")], render)


def render(request: PageRequest) -> list[Any]:
    studies = request.reader.studies(request.project.id)
    if not studies:
        raise NotFound(
            "No studies yet", "List the studies that come with recover, and run one:", ["recover study --list"]
        )
    if "study" not in request.query:
        return [page_title("Studies"), join(_summary(request, study) for study in studies)]
    study = next((study for study in studies if study.id == request.number("study")), None)
    if study is None:
        raise NotFound("There is no such study", link=link("studies", "All studies"))
    title = page_title(parts.title_of(study), above=links([link("studies", "All studies")]))
    arms = card("Arms", parts.arm_table(study) + parts.how_to_open(study, request.project.root)) if study.arms else ""
    return [title, join([_summary(request, study), arms])]


def _summary(request: PageRequest, study: Study) -> Markup:
    arms = link("studies", "arms", study=study.id)
    picture = parts.picture(study, request.look.palette, request.look.narrow)
    content = join([parts.head(study, arms), parts.claim_table(study), picture])
    note = parts.progress_of(study) or parts.PICTURE_NOTE
    return Markup(card(f"{parts.title_of(study)}: {study.declaration['title']}", content, note))
