"""Keeping an open page up to date: it asks every few seconds and replaces only the parts that have changed.

A poll costs a few reads by key, however long the history is. What a reader typed, scrolled or zoomed stays, because
an unchanged part is not sent again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import gradio as gr
from markupsafe import Markup

from dashboard.actions import ActionError, Actions
from dashboard.ui.caches import RunMetrics, ViewCache
from dashboard.ui.charts.figure import Look
from dashboard.ui.html import escape_text
from dashboard.ui.layout import Pages, error, masthead, no_cycles, not_found
from db import RecordError
from db.queries import Reader
from db.tables import Project, Run

POLL_SECONDS = 4
# Runs in the browser before each call and replaces the last input: only the browser knows its screen and the address.
BROWSER_STATE_JS = """(...inputs) => [...inputs.slice(0, -1), JSON.stringify({
    dark: document.body.classList.contains('dark'), narrow: window.innerWidth <= 760,
    search: window.location.search})]"""

# How the button of a form calls: also with what the page showed at the click, since its address may mean another thing.
_SHOWN_JS = "shown: [...document.querySelectorAll('[data-shown]')].at(-1)?.dataset.shown"
ACTION = {
    "js": BROWSER_STATE_JS.replace("search:", f"{_SHOWN_JS}, search:"),
    "queue": False,
    "api_visibility": "private",
}


class NotFound(Exception):
    """What the address asks for does not exist. Without a title: the project has no cycles yet."""

    def __init__(
        self, title: str = "", text: str = "", commands: Sequence[str] = (), link: Markup | None = None
    ) -> None:
        super().__init__("\n".join(filter(None, [title, text, *commands])))
        self.title, self.text, self.commands, self.link = title, text, commands, link


@dataclass(frozen=True)
class Dashboard:
    """One served dashboard: whose record it reads, its pages, and what they may do."""

    reader: Reader
    project_name: str | None
    pages: Pages
    actions: Actions
    metrics: RunMetrics
    cache: ViewCache = field(default_factory=ViewCache)
    first_paints: dict[str, Callable[[str], str]] = field(default_factory=dict)  # by path, see server/first_paint.py

    def find_project(self) -> Project | None:
        """The named project, by default the newest of the record."""
        projects = [project for project in self.reader.projects() if self.project_name in (None, project.name)]
        return projects[-1] if projects else None


@dataclass(frozen=True)
class PageRequest:
    """What a page is rendered from: the record, the query of the address, and the screen."""

    reader: Reader
    project: Project
    query: Mapping[str, str]
    look: Look
    actions: Actions
    metrics: RunMetrics
    shown: str = ""  # with a click: what the page showed, see `mark_shown`

    @property
    def running(self) -> list[Run]:
        """Those whose process lives before the others, the newest first."""
        return sorted(self.reader.running(self.project.id), key=lambda run: run.stale)

    def require_shown(self, kind: str, id: int | None) -> None:
        """Raise ActionError if a click on a page that shows another run, cycle or checkpoint means this one."""
        shown = dict(pair.partition(":")[::2] for pair in self.shown.split())
        if kind in shown and shown[kind] != str(id):
            raise ActionError(f"The page shows another {kind} now: look at it, and click again.")

    def number(self, name: str) -> int | None:
        """A number in the query, None for anything else."""
        text = self.query.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


Render = Callable[[PageRequest], Sequence[Any]]  # returns one value for each part: Markup, text, gr.update(), or None
Version = Callable[[PageRequest], Any]  # equal as long as the page would be rendered the same


def project_version(request: PageRequest) -> Any:
    return request.reader.changes(request.project.id)


def poll(
    app: gr.Blocks,
    dashboard: Dashboard,
    path: str,
    parts: Sequence[gr.Blocks],
    render: Render,
    version: Version = project_version,
) -> None:
    """Render `parts` when the page opens, and again whenever `version` returns something else."""
    previous, browser_state = gr.State(), gr.Textbox(visible=False)

    def on_poll(previous: Any, browser_state: str) -> list[Any]:
        return refresh(dashboard, path, len(parts), render, version, previous, browser_state)

    dashboard.first_paints[path] = lambda browser_state: str(on_poll(None, browser_state)[1]["value"])
    event: dict[str, Any] = {"fn": on_poll, "inputs": [previous, browser_state], "outputs": [previous, *parts]}
    event |= {"js": BROWSER_STATE_JS, "queue": False, "show_progress": "hidden", "api_visibility": "private"}
    app.load(**event)
    gr.Timer(POLL_SECONDS).tick(**event)


def perform_action(dashboard: Dashboard, browser_state: str, action: Callable[[PageRequest], str]) -> str:
    """Run an action of a page and return its message, or its error, as HTML."""
    try:
        project = dashboard.find_project()
        if project is None:
            raise ActionError("The record has no project yet.")
        return str(escape_text(action(parse_request(dashboard, project, browser_state))))
    except (ActionError, RecordError, NotFound) as refusal:
        return str(error(refusal, "span", "refused"))


def refresh(
    dashboard: Dashboard, path: str, count: int, render: Render, version: Version, previous: Any, browser_state: str
) -> list[Any]:
    """Return the new state and an update for each of `count` parts; unchanged parts are skipped."""
    old_key, old_digests = previous or (None, [None] * count)
    try:
        project = dashboard.find_project()
        request = parse_request(dashboard, project, browser_state) if project else None
        key = (browser_state, project and project.root, request and version(request))
        if key == old_key:
            return [gr.skip()] * (count + 1)
        values, digests = dashboard.cache.get(
            repr((path, key)), lambda: _with_digests(_render(dashboard, path, request, render, count))
        )
    except RecordError as problem:  # the next poll may be able to read the record
        key, top = None, masthead("", path, dashboard.pages) + error(problem)
        values, digests = _with_digests([top, *[gr.skip()] * (count - 1)])
    updates = [
        gr.skip() if new == old else _update(value)
        for value, new, old in zip(values, digests, old_digests, strict=True)
    ]
    return [(key, digests), *updates]


def parse_request(dashboard: Dashboard, project: Project, browser_state: str) -> PageRequest:
    state = json.loads(browser_state)
    query = {name: values[-1] for name, values in parse_qs(str(state["search"]).lstrip("?")).items()}
    look = Look(bool(state["dark"]), bool(state["narrow"]))
    shown = str(state.get("shown") or "")
    return PageRequest(dashboard.reader, project, query, look, dashboard.actions, dashboard.metrics, shown)


def mark_shown(**ids: int | None) -> Markup:
    """What an action on the page is about, by kind; a click sends it."""
    return Markup('<i hidden data-shown="{}"></i>').format(" ".join(f"{kind}:{id}" for kind, id in ids.items()))


def _render(dashboard: Dashboard, path: str, request: PageRequest | None, render: Render, count: int) -> list[Any]:
    project = request and request.project
    title = f"{project.name} · base {project.base_name}" if project else dashboard.project_name or ""
    try:
        if request is None:
            raise NotFound
        first, *rest = render(request)
    except NotFound as problem:
        first = not_found(problem) if problem.title else no_cycles()
        rest = [None] * (count - 1)
    return [masthead(title, path, dashboard.pages) + first, *rest]


def _with_digests(values: list[Any]) -> tuple[list[Any], list[int]]:
    return values, [hash(repr(value)) for value in values]


def _update(value: Any) -> Any:
    """The update of one part. None hides it; text that is not Markup is escaped."""
    if value is None:
        return gr.update(visible=False)
    if isinstance(value, str):
        return gr.update(value=str(escape_text(value)), visible=True)
    return dict(value) if isinstance(value, dict) else value  # a copy: Gradio empties it, and others share the cache
