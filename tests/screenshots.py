"""Save a screenshot of every dashboard page, at both widths, light and dark.

    python -m tests.screenshots [URL_OR_RECORD] FOLDER

Without a record it shows a seeded one with a live run. The README's picture, docs/images/overview.png, is
overview-desktop-light.png after `make demo`: `python -m tests.screenshots recover-demo/.recover/recover.db FOLDER`.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dashboard.actions import Actions
from dashboard.app import PAGES, PLAYGROUND
from dashboard.server.serve import open_dashboard
from db.engine import open_database
from db.queries import Reader
from db.tracker import Tracker
from pipelines.cli.dashboard_actions import shipped_studies
from tests.browser import WIDTHS, Visit, started
from tests.db.seeded import seed, under_way

ACTIONS = Actions(
    generate=lambda checkpoints, prompt: [],
    cancel=lambda run: None,
    decide=lambda checkpoint, user, reason, decision: None,
    add_note=lambda text, user, *, cycle=None, checkpoint=None: None,
    shipped_studies=shipped_studies,
)


def main(folder: str, source: str = "") -> None:
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with _served(source) as url, started() as browser:
        for title, path, _ in [*PAGES, PLAYGROUND]:
            for width in WIDTHS:
                for theme in ("light", "dark"):
                    visit = Visit(browser, width, dark=theme == "dark")
                    visit.page.goto(f"{url}/{path}")
                    visit.page.wait_for_selector("gradio-app .masthead", state="attached")
                    visit.page.wait_for_timeout(1500)
                    for chart in visit.page.locator(".chart").all():
                        chart.locator(".js-plotly-plot .main-svg").first.wait_for()
                    file = target / f"{title.lower().replace(' ', '-')}-{width}-{theme}.png"
                    visit.page.screenshot(path=file, full_page=True)
                    print(file, *visit.problems, sep="\n  ")
                    visit.close()


@contextmanager
def _served(source: str) -> Iterator[str]:
    if source.startswith("http"):
        yield source
        return
    with tempfile.TemporaryDirectory() as folder:
        engine = open_database(source or Path(folder) / "record.db")
        if not source:
            with (
                Tracker(engine) as tracker,
                under_way(tracker, seed(tracker)),
                open_dashboard(Reader(engine), actions=ACTIONS) as url,
            ):
                yield url
        else:
            with open_dashboard(Reader(engine), actions=ACTIONS) as url:
                yield url
        engine.dispose()


if __name__ == "__main__":
    main(*reversed(sys.argv[1:]))
