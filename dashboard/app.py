"""All pages in one application. A new page is a module with a `page` function and one line in `PAGES`."""

import gradio as gr

from dashboard import overview
from db.queries import Reader

PAGES = [("Overview", "", overview.page)]
"""Title, path, and what fills the page; the first answers at the root."""


def build(reader: Reader, project: str | None = None) -> gr.Blocks:
    """The dashboard of one project, by default the one the record heard of last."""
    ways = [(title, path) for title, path, _ in PAGES]
    with gr.Blocks(title="recover", analytics_enabled=False) as app:
        PAGES[0][2](app, reader, project, ways)
    for title, path, fill in PAGES[1:]:
        with app.route(title, path):
            fill(app, reader, project, ways)
    return app
