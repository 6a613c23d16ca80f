"""Requesting the content of a page without a browser, as an open page does."""

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import gradio as gr
from markupsafe import Markup

from dashboard.actions import Actions
from dashboard.app import PAGES
from dashboard.pages import overview
from dashboard.ui import polling
from dashboard.ui.caches import RunMetrics
from dashboard.ui.polling import Dashboard, PageRequest
from db.queries import Reader

READ_ONLY = Actions()


def dashboard(reader: Reader, project: str | None = None, actions: Actions = READ_ONLY) -> Dashboard:
    return Dashboard(reader, project, [(title, path) for title, path, _ in PAGES], actions, RunMetrics(reader))


def browser_state(search: str = "", dark: bool = False, narrow: bool = False, shown: str = "") -> str:
    """What a browser sends with every request; with a click also what the page showed."""
    return json.dumps({"dark": dark, "narrow": narrow, "search": search} | ({"shown": shown} if shown else {}))


def page_request(
    reader: Reader, search: str = "", actions: Actions = READ_ONLY, shown: str = "", **screen: bool
) -> PageRequest:
    site = dashboard(reader, actions=actions)
    project = site.find_project()
    assert project is not None
    return polling.parse_request(site, project, browser_state(search, shown=shown, **screen))


def parts(page: ModuleType, reader: Reader, search: str = "", actions: Actions = READ_ONLY) -> list[Any]:
    return list(page.render(page_request(reader, search, actions)))


def page_html(page: ModuleType, reader: Reader, search: str = "", actions: Actions = READ_ONLY) -> str:
    """All parts of a page that are HTML."""
    return "".join(part for part in parts(page, reader, search, actions) if isinstance(part, Markup))


def click_handlers(app: gr.Blocks) -> dict[str, Callable[..., Any]]:
    """What a click on each button calls, by the button's id."""
    buttons = {id: block.elem_id for id, block in app.blocks.items() if isinstance(block, gr.Button)}
    return {buttons[fn.targets[0][0]]: fn.fn for fn in app.fns.values() if fn.targets[0][0] in buttons}


def refreshed(reader: Reader, previous: Any = None, project: str | None = None, dark: bool = False) -> list[Any]:
    """One poll of the overview: the new state, and each part's new content (or gr.skip())."""
    state = browser_state(dark=dark)
    site = dashboard(reader, project)
    new = polling.refresh(site, "", 5, overview.render, polling.project_version, previous, state)
    return [part.get("value", part) if isinstance(part, dict) else part for part in new]
