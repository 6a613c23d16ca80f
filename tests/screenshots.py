"""`python -m tests.screenshots URL_OR_RECORD FOLDER`: every page at both widths, light and dark, to look at."""

import sys
from contextlib import nullcontext
from pathlib import Path

from dashboard.app import PAGES
from dashboard.serve import opened
from db.engine import open_database
from db.queries import Reader
from tests.browser import WIDTHS, Visit, started


def main(source: str, folder: str) -> None:
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    remote = source.startswith("http")
    with nullcontext(source) if remote else opened(Reader(open_database(source))) as url, started() as browser:
        for title, path, _ in PAGES:
            for width in WIDTHS:
                for theme in ("light", "dark"):
                    visit = Visit(browser, width, dark=theme == "dark")
                    visit.page.goto(f"{url}/{path}")
                    visit.page.wait_for_selector(".masthead", state="attached")
                    visit.page.wait_for_timeout(1500)
                    file = out / f"{title.lower()}-{width}-{theme}.png"
                    visit.page.screenshot(path=file, full_page=True)
                    print(file, *visit.problems, sep="\n  ")
                    visit.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
