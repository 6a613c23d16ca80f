"""All pages in one application. A new page is a module with a `page` function and one line in `PAGES`."""

import gradio as gr

from dashboard.actions import Actions
from dashboard.pages import compare, cycle, lineage, live_run, overview, playground, rollout_tokens, studies
from dashboard.pages import cycle_list as cycles
from dashboard.ui.caches import RunMetrics
from dashboard.ui.polling import Dashboard
from db.queries import Reader

PAGES = [  # title, path, and the function that builds the page; the first answers at the root
    ("Overview", "", overview.page),
    ("Cycles", "cycles", cycles.page),
    ("Cycle", "cycle", cycle.page),
    ("Compare", "compare", compare.page),
    ("Lineage", "lineage", lineage.page),
    ("Tokens", "tokens", rollout_tokens.page),
    ("Live", "live", live_run.page),
    ("Studies", "studies", studies.page),
]
PLAYGROUND = ("Try it", "try", playground.page)


def build_app(reader: Reader, project: str | None, actions: Actions) -> tuple[gr.Blocks, Dashboard]:
    """Build the dashboard of one project, by default the newest of the record."""
    pages = [*PAGES, PLAYGROUND] if actions.generate else PAGES
    dashboard = Dashboard(reader, project, [(title, path) for title, path, _ in pages], actions, RunMetrics(reader))
    with gr.Blocks(title="recover", analytics_enabled=False) as app:
        pages[0][2](app, dashboard)
    for title, path, page in pages[1:]:
        with app.route(title, path, show_in_navbar=False):  # the masthead has the navigation
            page(app, dashboard)
    return app, dashboard
