"""Asking a page for its content without a browser, as an open one does."""

import json
from types import ModuleType
from typing import Any

from dashboard.actions import Actions
from dashboard.app import PAGES
from dashboard.pages import overview
from dashboard.ui import polling as follow
from dashboard.ui.polling import Asked, Site
from dashboard.ui.run_metrics import Numbers
from db.queries import Reader

LOOKING_ONLY = Actions()


def site(reader: Reader, project: str | None = None, actions: Actions = LOOKING_ONLY) -> Site:
    return Site(reader, project, [(title, path) for title, path, _ in PAGES], actions, Numbers(reader))


def said(search: str = "", dark: bool = False, narrow: bool = False) -> str:
    """What a browser says with every question."""
    return json.dumps({"dark": dark, "narrow": narrow, "search": search})


def asked(reader: Reader, search: str = "", actions: Actions = LOOKING_ONLY, **seen_on: bool) -> Asked:
    place = site(reader, actions=actions)
    project = place.find_project()
    assert project is not None
    return follow.heard(place, project, said(search, **seen_on))


def content(page: ModuleType, reader: Reader, search: str = "", actions: Actions = LOOKING_ONLY) -> list[Any]:
    return list(page.fill(asked(reader, search, actions)))


def words(page: ModuleType, reader: Reader, search: str = "", actions: Actions = LOOKING_ONLY) -> str:
    """All of a page that is HTML."""
    return "".join(part for part in content(page, reader, search, actions) if isinstance(part, str))


def refreshed(reader: Reader, seen: Any = None, project: str | None = None, dark: bool = False) -> list[Any]:
    """One look of the overview's: what was seen, and each part's new content (or gr.skip())."""
    new = follow.refreshed(site(reader, project), "", 6, overview.fill, follow.changes, seen, said(dark=dark))
    return [part.get("value", part) if isinstance(part, dict) else part for part in new]
