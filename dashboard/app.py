"""All pages in one application. A new page is a module with a `page` function and one line in `PAGES`."""

import gradio as gr

from dashboard.actions import Actions
from dashboard.pages import compare, cycle, cycles, lineage, overview
from dashboard.pages import live_run as live
from dashboard.pages import playground as trying
from dashboard.pages import rollout_tokens as tokens
from dashboard.ui.polling import Site
from dashboard.ui.run_metrics import Numbers
from db.queries import Reader

PAGES = [
    ("Overview", "", overview.page),
    ("Cycles", "cycles", cycles.page),
    ("Cycle", "cycle", cycle.page),
    ("Compare", "compare", compare.page),
    ("Lineage", "lineage", lineage.page),
    ("Tokens", "tokens", tokens.page),
    ("Live", "live", live.page),
]
"""Title, path, and what fills the page; the first answers at the root."""
TRYING = ("Try it", "try", trying.page)


def build(
    reader: Reader,
    project: str | None = None,
    actions: Actions = Actions(),  # noqa: B008
) -> tuple[gr.Blocks, Site]:
    """The dashboard of one project, by default the one the record heard of last."""
    pages = [*PAGES, TRYING] if actions.generate else PAGES
    site = Site(reader, project, [(title, path) for title, path, _ in pages], actions, Numbers(reader))
    with gr.Blocks(title="recover", analytics_enabled=False) as app:
        pages[0][2](app, site)
    for title, path, fill in pages[1:]:
        with app.route(title, path, show_in_navbar=False):  # our own is in the head
            fill(app, site)
    return app, site
