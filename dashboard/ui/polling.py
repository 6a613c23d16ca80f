"""Keeping an open page true: it looks every few seconds, and touches only what reads differently now.

A look costs a few reads by key, whatever the length of the history. What is typed, scrolled or zoomed stays, since a
part that says the same is not sent again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import gradio as gr

from dashboard.actions import ActionError, Actions
from dashboard.ui.charts import Look
from dashboard.ui.layout import Pages, head, shown
from dashboard.ui.run_metrics import Numbers
from dashboard.ui.view_cache import Kept
from db.errors import RecordError
from db.queries import Reader
from db.views import Project

SECONDS_BETWEEN_LOOKS = 4
SEE = """(...given) => [...given.slice(0, -1), JSON.stringify({dark: document.body.classList.contains('dark'),
    narrow: window.innerWidth <= 760, search: window.location.search})]"""
"""Only the browser knows what the page will be seen on, and its address; it says so with every question, at its end."""
EMPTY = """<section class="empty"><h1>No cycle on record yet</h1>
<p>See the whole job on the built-in model, without a GPU or a network:</p>
<pre>recover demo
recover dashboard --project recover-demo</pre>
<p>Or teach the current model your own documents:</p><pre>recover midtrain --docs ./corpus</pre>
<p>This page fills by itself as soon as a cycle begins.</p></section>"""


class NotThere(Exception):
    """What the address asks for is not on record; the text, in HTML, says what there is instead. Without: nothing."""


@dataclass(frozen=True)
class Site:
    """One dashboard: whose record, which of its projects, and what may be done."""

    reader: Reader
    project: str | None
    pages: Pages
    actions: Actions
    numbers: Numbers
    kept: Kept = field(default_factory=Kept)
    first_words: dict[str, Callable[[str], str]] = field(default_factory=dict)
    """By page, its first part, for what a browser says."""

    def find_project(self) -> Project | None:
        """The one that was named, or else the one the record heard of last."""
        found = [project for project in self.reader.projects() if self.project in (None, project.name)]
        return found[-1] if found else None


@dataclass(frozen=True)
class Asked:
    reader: Reader
    project: Project
    query: Mapping[str, str]
    look: Look
    actions: Actions
    numbers: Numbers

    def number(self, name: str) -> int | None:
        """A number in the address; what is none was not asked for."""
        text = self.query.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


Fill = Callable[[Asked], Sequence[Any]]
Mark = Callable[[Asked], Any]


def changes(asked: Asked) -> Any:
    return asked.reader.changes(asked.project.id)


def follow(app: gr.Blocks, site: Site, here: str, parts: Sequence[gr.Blocks], fill: Fill, mark: Mark = changes) -> None:
    """Fill `parts` (pieces of HTML) when the page opens, and again whenever `mark` says something else."""
    seen, said = gr.State(), gr.Textbox(visible=False)
    many = len(parts) + 1

    def refresh(seen: Any, said: str) -> list[Any]:
        return refreshed(site, here, many, fill, mark, seen, said)

    site.first_words[here] = lambda said: str(refresh(None, said)[1]["value"])
    top, *rest = parts
    asking: dict[str, Any] = {"fn": refresh, "inputs": [seen, said], "outputs": [seen, top, *rest], "js": SEE}
    asking |= {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    app.load(**asking)
    gr.Timer(SECONDS_BETWEEN_LOOKS).tick(**asking)


def acting(site: Site, said: str, act: Callable[[Asked], str]) -> str:
    """Do what a person asked for on a page, and say, in HTML, what came of it."""
    try:
        project = site.find_project()
        return act(heard(site, project, said)) if project else "There is nothing on record yet."
    except (ActionError, RecordError, NotThere) as refused:
        return f'<span class="refused" role="alert">{shown(refused)}</span>'


def refreshed(site: Site, here: str, many: int, fill: Fill, mark: Mark, seen: Any, said: str) -> list[Any]:
    before, digests = seen or (None, [None] * (many - 1))
    try:
        project = site.find_project()
        asked = heard(site, project, said) if project else None
        now = (said, project and project.root, asked and mark(asked))
        if now == before:
            return [gr.skip()] * many
        values, latest = site.kept.of(repr((here, now)), lambda: _known(_values(site, here, asked, fill, many - 1)))
    except RecordError as error:  # it may be readable again by the next look
        now, values = None, [head("", here, site.pages) + f'<p role="alert">{shown(error)}</p>']
        values, latest = _known([*values, *[gr.skip()] * (many - 2)])
    fresh = [gr.skip() if a == b else _update(v) for v, a, b in zip(values, latest, digests, strict=True)]
    return [(now, latest), *fresh]


def _values(site: Site, here: str, asked: Asked | None, fill: Fill, many: int) -> list[Any]:
    name = f"{asked.project.name} · base {_short(asked.project.base)}" if asked else site.project or ""
    top = head(name, here, site.pages)
    try:
        if asked is None:
            raise NotThere
        first, *rest = fill(asked)
    except NotThere as missing:
        first = f'<section class="empty">{missing}</section>' if missing.args else EMPTY
        rest = [None] * (many - 1)
    return [top + first, *rest]


def heard(site: Site, project: Project, said: str) -> Asked:
    told = json.loads(said)
    query = {name: values[-1] for name, values in parse_qs(str(told["search"]).lstrip("?")).items()}
    look = Look(bool(told["dark"]), bool(told["narrow"]))
    return Asked(site.reader, project, query, look, site.actions, site.numbers)


def _known(values: list[Any]) -> tuple[list[Any], list[int]]:
    """The parts, and by what each is known again."""
    return values, [hash(repr(value)) for value in values]


def _update(value: Any) -> Any:
    """Nothing to show is nothing at all: no empty frame, no place holder."""
    if value is None:
        return gr.update(visible=False)
    if isinstance(value, str):
        return gr.update(value=value, visible=True)
    return dict(value) if isinstance(value, dict) else value  # gradio empties what it is given, and others share it


def _short(base: str) -> str:
    """A folder by its last two names; a hub id as it is."""
    parts = Path(base).parts
    return "/".join(parts[-2:]) if Path(base).is_absolute() else base
