"""A real browser for tests: the system's chromium, driven by playwright.

Without chromium these tests are skipped; with RECOVER_REQUIRE_BROWSER=1, as in CI, they fail instead. RECOVER_CHROMIUM
names another executable.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

WIDTHS = {"desktop": (1440, 900), "phone": (390, 844)}
TIMEOUT = 30_000  # milliseconds; a busy machine draws pages slowly
expect.set_options(timeout=TIMEOUT)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


def chromium() -> str | None:
    named = os.environ.get("RECOVER_CHROMIUM")
    return shutil.which(named) if named else shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def started() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """A page in a new session; it records console errors and the hosts of all requests."""

    def __init__(self, browser: Browser, width: str = "desktop", dark: bool = False) -> None:
        size = WIDTHS[width]
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            has_touch=width == "phone",
            device_scale_factor=2 if width == "phone" else 1,
        )
        self.page: Page = context.new_page()
        self.problems: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", self._record_error)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))

    def close(self) -> None:
        self.page.context.close()

    def _record_error(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(message.text)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if chromium() is None:
        reason = "chromium is not installed; set RECOVER_CHROMIUM or install the package `chromium`"
        (pytest.fail if os.environ.get("RECOVER_REQUIRE_BROWSER") == "1" else pytest.skip)(reason)
    with started() as opened:
        yield opened


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """`visit(url, width="phone", dark=True)` opens a page; errors on its console fail the test."""
    visits: list[Visit] = []

    def open_page(url: str, width: str = "desktop", dark: bool = False) -> Visit:
        visits.append(Visit(browser, width, dark))
        visits[-1].page.goto(url)
        return visits[-1]

    yield open_page
    for visit in visits:
        visit.close()
    assert [problem for visit in visits for problem in visit.problems] == []
