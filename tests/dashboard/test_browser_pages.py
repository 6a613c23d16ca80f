"""Through all pages as a person goes: links, filters, a link sent to a colleague, saving, notes, decisions."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dashboard.actions import Actions, Answer
from dashboard.app import PAGES, TRYING
from tests.browser import WIDTHS
from tests.db.seeded import seed, under_way

pytestmark = pytest.mark.browser


@pytest.fixture
def may(told):
    """What the command line hands in, with a model that answers at once."""
    tracker, _ = told

    def note(text, who, *, cycle=None, checkpoint=None):
        tracker.note(1, text, who or "ada", cycle=cycle, checkpoint=checkpoint)

    def generate(checkpoints, prompt):
        return [Answer(f"model {one}", f"{prompt}, says {one}", 0.1) for one in checkpoints]

    def promote(checkpoint, who, why):
        tracker.promote(1, None, checkpoint, "promoted", who or "ada", why)

    return Actions(generate=generate, cancel=tracker.request_cancel, note=note, promote=promote)


def answers(page: Page) -> str:
    expect(page.locator("#answers .item").first).to_be_visible()
    return page.locator("#answers").inner_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_opens_by_the_links_and_fits_its_screen(told, may, serving, visit, width):
    tracker, reader = told
    with under_way(tracker, seed(tracker)):
        page = visit(serving(reader, actions=may), width=width).page
        for title, path, _ in [*PAGES, TRYING]:
            page.get_by_role("navigation", name="Pages").get_by_role("link", name=title, exact=True).click()
            expect(page).to_have_url(re.compile(f"/{path}$"))
            expect(page.get_by_role("link", name=title, exact=True).first).to_have_attribute("aria-current", "page")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0], f"{title} sticks out"


def test_what_the_address_says_is_what_a_colleague_sees(url, visit):
    page = visit(f"{url}/cycles").page
    page.get_by_label("Verdict", exact=True).select_option("rejected")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="1 of 3 cycles")).to_be_visible()
    page.get_by_role("link", name="Cycle 3").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cycle 3 rejected")
    page.get_by_role("link", name="Compare with the clean model").click()
    page.get_by_label("Show", exact=True).select_option("lost")
    page.get_by_label("Instruction").select_option("keywords:frequency")
    page.get_by_role("button", name="Compare").click()
    expect(page).to_have_url(re.compile("show=lost.*kind=keywords"))
    mine = answers(page)
    assert "keywords:frequency" in mine
    assert answers(visit(page.url).page) == mine, "a fresh session reads the same"


def test_tables_and_charts_are_saved(url, visit, tmp_path):
    page = visit(url).page
    expect(page.locator("#over-time .js-plotly-plot")).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save this table as CSV").click()
    table = _text(saved.value.path())
    assert table.splitlines()[0].startswith("\ufeffCycle,Verdict,Documents")
    assert "3,rejected,2026-q3,0.925 0.225 0.800" in table
    for format, begin in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Save this chart as {format}").first.click()
        assert Path(saved.value.path()).read_bytes()[:200].find(begin) in (0, 1, 2, 3)


def test_a_note_and_a_decision_are_kept_and_shown(told, may, serving, visit):
    tracker, reader = told
    seed(tracker)
    page = visit(f"{serving(reader, actions=may)}/cycle?number=3").page
    page.get_by_role("button", name="Promote: make it current").click()
    expect(page.get_by_text("Say why first")).to_be_visible()
    page.get_by_label("Decide yourself: why?").fill("good enough for us")
    page.get_by_role("button", name="Promote: make it current").click()
    expect(page.get_by_text("Promoted.", exact=True)).to_be_visible()
    page.get_by_label("Write a note (Markdown)").fill("Too **long**, see <b>below</b>")
    page.get_by_role("button", name="Keep this note").click()
    kept = page.locator("#notes strong", has_text="long")
    expect(kept).to_be_visible()
    expect(page.locator("#notes")).to_contain_text("<b>below</b>")
    expect(page.get_by_label("Write a note (Markdown)")).to_have_value("")
    current = reader.current(1)
    assert current.reference == "cycle:3/recovered"
    latest, *_ = reader.promotions(1)
    assert (latest.who, latest.why) == ("ada", "good enough for us")


def test_a_run_is_stopped_only_by_who_means_it(told, may, serving, visit):
    tracker, reader = told
    with under_way(tracker, seed(tracker)) as run:
        page = visit(f"{serving(reader, actions=may)}/live").page
        expect(page.get_by_role("heading", level=1)).to_contain_text("step 12 of 48")
        page.get_by_role("button", name="Stop the run").click()
        expect(page.get_by_text("Tick the box first")).to_be_visible()
        assert not reader.cancel_requested(run)
        page.get_by_label("I want this run to stop").check()
        page.get_by_role("button", name="Stop the run").click()
        expect(page.get_by_text("asked to stop").first).to_be_visible()
        assert reader.cancel_requested(run)
        tracker.step(run, 12, {"loss": 0.1})
        expect(page.get_by_role("heading", level=1)).to_contain_text("step 13 of 48")


def test_one_prompt_goes_to_the_checkpoints_chosen(told, may, serving, visit):
    tracker, reader = told
    seed(tracker, cycles=1)
    page = visit(f"{serving(reader, actions=may)}/try?of=1,2&prompt=Hello").page
    expect(page.get_by_label("Prompt")).to_have_value("Hello")
    page.get_by_label("cycle:1/recovered").check()
    page.get_by_role("button", name="Ask them").click()
    for checkpoint in (1, 2, 3):
        expect(page.get_by_text(f"Hello, says {checkpoint}")).to_be_visible()


def test_a_token_tells_by_keyboard_what_else_could_have_been_said(url, visit):
    page = visit(f"{url}/tokens?step=0").page
    token = page.locator(".token").nth(3)
    expect(token.get_by_role("tooltip")).to_be_hidden()
    token.focus()
    expect(token.get_by_role("tooltip")).to_be_visible()
    expect(token.get_by_role("tooltip")).to_contain_text("␣there 0.20")


def _text(path: Path) -> str:
    return Path(path).read_text(encoding="utf-8")


def test_a_page_does_not_jump_when_it_is_drawn_anew(told, may, serving, visit):
    tracker, reader = told
    with under_way(tracker, seed(tracker)) as run:
        page = visit(f"{serving(reader, actions=may)}/live").page
        expect(page.locator("#curves .js-plotly-plot .main-svg").first).to_be_visible()
        page.evaluate(
            """() => { window.seen = new Set(); const look = () => {
                window.seen.add(Math.round(document.querySelector('#said').getBoundingClientRect().top + scrollY));
                requestAnimationFrame(look) }; look() }"""
        )
        tracker.step(run, 12, {"loss": 0.1})
        expect(page.get_by_role("heading", level=1)).to_contain_text("step 13 of 48")
        page.wait_for_timeout(1000)
        assert len(page.evaluate("[...window.seen]")) == 1, "what lies below the chart stays where it is"


def test_the_way_to_every_page_is_open_to_the_keyboard(url, visit):
    page = visit(url).page
    expect(page.get_by_role("link", name="Cycle 3", exact=True)).to_be_visible()
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.innerText || document.activeElement.ariaLabel || ''"))
    assert {"Cycles", "Compare", "Lineage", "PNG", "CSV", "Cycle 3"} <= reached
