import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dashboard.actions import Actions, ModelAnswer
from dashboard.app import PAGES, PLAYGROUND
from dashboard.html_report import report
from tests.browser import WIDTHS
from tests.db.seeded import add_study, seed, try_again, under_way

pytestmark = pytest.mark.browser
RANGE = "document.querySelector('#over-time .js-plotly-plot')._fullLayout.xaxis.range"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_overview_shows_all_four_curves(url, visit, width, dark):
    session = visit(url, width=width, dark=dark)
    page, chart = session.page, session.page.locator("#over-time")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cycle 3 not promoted")
    for name in ("Instruction following", "What it knew before", "New knowledge", "Earlier cycles"):
        expect(chart.get_by_text(name)).to_be_visible()
    expect(chart.locator(".scatterlayer .trace path.js-line")).not_to_have_count(0)
    expect(page.locator("#plane .scatterlayer .trace")).not_to_have_count(0)
    expect(page.get_by_role("rowheader", name="Cycle 1")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0], "nothing sticks out"
    assert session.hosts == {url.removeprefix("http://")}, "nothing is fetched from elsewhere"


@pytest.mark.parametrize("width", WIDTHS)
def test_overview_cycle_and_report_show_all_four_measures(url, visit, reader, tmp_path, width):
    (project,) = reader.projects()
    file = tmp_path / "report.html"
    file.write_text(report(reader, project, 3), encoding="utf-8")
    places = (
        (url, "#cycles", "0.400"),
        (f"{url}/cycle?number=3", "#details", "arithmetic"),
        (file.as_uri(), "main", "arithmetic"),
    )
    for address, table, text in places:
        session = visit(address, width=width)
        page = session.page
        expect(page.locator("#first")).to_have_count(0)  # the first paint, which is replaced with what is opened in it
        measures = page.locator(".measures")
        for scores in ("0.925 → 0.225 → 0.800", "0.050 → 0.950 → 0.900", "0.800 → 0.850", "0.850 → 0.400 → 0.700"):
            expect(measures).to_contain_text(scores)
        expect(page.get_by_text("10 lost, none gained")).to_be_hidden()
        page.get_by_text("What was lost and gained").click()
        expect(page.get_by_text("10 lost, none gained")).to_be_visible()
        expect(page.locator(table)).to_contain_text(text)
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0], "nothing sticks out"
    for name in ("over-time", "plane", "curves"):  # of the report, which is open last
        expect(page.locator(f"[data-chart={name}] .scatterlayer .trace")).not_to_have_count(0)
    assert session.hosts == {""}, "a report fetches nothing"


def test_an_open_page_follows_the_record_and_stays_the_same_otherwise(tracker, written, serving, visit):
    page = visit(serving(written)).page
    expect(page.get_by_text("recover demo")).to_be_visible()
    seed(tracker, cycles=1)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cycle 1 promoted")
    expect(page.locator("#over-time").get_by_text("New knowledge")).to_be_visible()
    page.evaluate("document.querySelector('#over-time .js-plotly-plot').dataset.same = 'yes'")
    page.wait_for_timeout(6_000)
    expect(page.locator("#over-time [data-same]")).to_have_count(1)


def test_a_chart_keeps_its_zoom_when_the_record_grows(tracker, written, serving, visit, seeded):
    page = visit(serving(written)).page
    chart = page.locator("#over-time .js-plotly-plot")
    area = chart.locator(".nsewdrag").first.bounding_box()
    page.mouse.move(area["x"] + 0.2 * area["width"], area["y"] + 100)
    page.mouse.down()
    page.mouse.move(area["x"] + 0.6 * area["width"], area["y"] + 100, steps=5)
    page.mouse.up()
    page.wait_for_function("document.querySelector('#over-time .js-plotly-plot')._fullLayout.xaxis.range[0] > 0.5")
    zoomed = page.evaluate(RANGE)
    tracker.open_cycle(seeded.project)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cycle 4 is under way")
    page.wait_for_function("document.querySelector('#over-time .js-plotly-plot').layout.xaxis.ticktext.length === 4")
    assert page.evaluate(RANGE) == zoomed


@pytest.fixture
def actions(tracker):
    """The actions of the command line, with models that answer at once."""

    def add_note(text, user, *, cycle=None, checkpoint=None):
        tracker.note(1, text, user or "ada", cycle=cycle, checkpoint=checkpoint)

    def generate(checkpoints, prompt):
        return [ModelAnswer(f"model {one}", f"{prompt}, answers {one}", 0.1) for one in checkpoints]

    def decide(checkpoint, user, reason, decision):
        tracker.promote(1, None, checkpoint, decision, user or "ada", reason)

    return Actions(generate=generate, cancel=tracker.request_cancel, add_note=add_note, decide=decide)


def answers(page: Page) -> str:
    expect(page.locator("#answers .item").first).to_be_visible()
    return page.locator("#answers").inner_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_opens_by_the_links_and_fits_its_screen(tracker, written, seeded, actions, serving, visit, width):
    study = add_study(tracker, seeded.project)
    try_again(tracker, seeded)

    def fits() -> bool:
        return page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0]

    with under_way(tracker, seeded):
        url = serving(written, actions=actions)
        page = visit(url, width=width).page
        for title, path, _ in [*PAGES, PLAYGROUND]:
            page.get_by_role("navigation", name="Pages").get_by_role("link", name=title, exact=True).click()
            expect(page).to_have_url(re.compile(f"/{path}$"))
            expect(page.get_by_role("link", name=title, exact=True).first).to_have_attribute("aria-current", "page")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.locator("#first")).to_have_count(0)  # a click on the first paint is lost where it is replaced
            assert fits(), f"{title} sticks out"
        page.goto(f"{url}/studies")
        page.get_by_role("link", name="arms", exact=True).click()
        expect(page).to_have_url(re.compile(rf"/studies\?study={study}$"))
        expect(page.get_by_role("rowheader", name="opd, seed 3")).to_be_visible()
        assert fits()
        page.goto(f"{url}/cycle?number=3")
        expect(page.get_by_role("table", name="Attempts").get_by_role("row")).to_have_count(3)
        assert fits()


def test_an_address_shows_the_same_in_another_session(url, visit):
    page = visit(f"{url}/cycles").page
    page.get_by_label("Verdict", exact=True).select_option("rejected")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="1 of 3 cycles")).to_be_visible()
    page.get_by_role("link", name="Cycle 3").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cycle 3 not promoted")
    page.get_by_role("link", name="Compare with the clean model").click()
    page.get_by_label("Show", exact=True).select_option("lost")
    page.get_by_label("Instruction").select_option("keywords:frequency")
    page.get_by_role("button", name="Compare").click()
    expect(page).to_have_url(re.compile("show=lost.*kind=keywords"))
    shared = answers(page)
    assert "keywords:frequency" in shared
    assert answers(visit(page.url).page) == shared


def test_tables_and_charts_are_saved(url, visit, tmp_path):
    page = visit(url).page
    expect(page.locator("#over-time .js-plotly-plot")).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save this table as CSV").click()
    table = Path(saved.value.path()).read_text(encoding="utf-8")
    assert table.splitlines()[0].startswith("\ufeffCycle,Verdict,Documents")
    assert "3,rejected,2026-q3,0.925 0.225 0.800" in table
    fields = page.evaluate('["−0.025", "-0.025", "−1 to +1", "=1+1"].map(field)')
    assert fields == ["-0.025", "-0.025", "−1 to +1", "'=1+1"]
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download plot", exact=True).first.click()
    assert saved.value.suggested_filename == "over-time.svg"
    assert Path(saved.value.path()).read_text(encoding="utf-8").startswith("<svg")


def test_a_note_and_a_decision_are_stored_and_shown(written, seeded, actions, serving, visit):
    page = visit(f"{serving(written, actions=actions)}/cycle?number=3").page
    page.get_by_role("button", name="Promote: make it current").click()
    expect(page.get_by_text("Give a reason first")).to_be_visible()
    page.get_by_label("Your decision: reason").fill("good enough for us")
    page.get_by_role("button", name="Promote: make it current").click()
    expect(page.get_by_text("Promoted.", exact=True)).to_be_visible()
    expect(page.get_by_text("Promoted against the gate's verdict (failed) by ada")).to_be_visible()
    page.get_by_label("Write a note (Markdown)").fill("Too **long**, see <b>below</b>")
    page.get_by_role("button", name="Save note").click()
    note = page.locator("#notes strong", has_text="long")
    expect(note).to_be_visible()
    expect(page.locator("#notes")).to_contain_text("<b>below</b>")
    expect(page.get_by_label("Write a note (Markdown)")).to_have_value("")
    current = written.current(1)
    assert current.reference == "cycle:3/recovered"
    latest, *_ = written.promotions(1)
    assert (latest.who, latest.why) == ("ada", "good enough for us")


def test_a_run_is_stopped_only_after_confirmation(tracker, written, seeded, actions, serving, visit):
    with under_way(tracker, seeded) as run:
        page = visit(f"{serving(written, actions=actions)}/live").page
        expect(page.get_by_role("heading", level=1)).to_contain_text("step 12 of 48")
        page.get_by_role("button", name="Stop the run").click()
        expect(page.get_by_text("Tick the box first")).to_be_visible()
        page.evaluate("document.querySelector('[data-shown]').dataset.shown = 'run:0'")
        page.get_by_label("Stop this run after the current step").check()
        page.get_by_role("button", name="Stop the run").click()
        expect(page.get_by_text("The page shows another run now")).to_be_visible()
        assert not written.cancel_requested(run)
        page.evaluate(f"document.querySelector('[data-shown]').dataset.shown = 'run:{run}'")
        page.get_by_label("Stop this run after the current step").check()
        page.get_by_role("button", name="Stop the run").click()
        expect(page.get_by_text("stop requested").first).to_be_visible()
        assert written.cancel_requested(run)
        tracker.step(run, 12, {"loss": 0.1})
        expect(page.get_by_role("heading", level=1)).to_contain_text("step 13 of 48")


def test_one_prompt_goes_to_the_selected_checkpoints(written, seeded, actions, serving, visit):
    page = visit(f"{serving(written, actions=actions)}/try?of=1,2&prompt=Hello").page
    expect(page.get_by_label("Prompt")).to_have_value("Hello")
    page.get_by_label("cycle:1/recovered").check()
    page.get_by_role("button", name="Generate").click()
    for checkpoint in (1, 2, 3):
        expect(page.get_by_text(f"Hello, answers {checkpoint}")).to_be_visible()


def test_a_focused_token_shows_the_choices_of_both_models(url, visit):
    page = visit(f"{url}/tokens?step=0").page
    token = page.locator(".token").nth(3)
    expect(token.get_by_role("tooltip")).to_be_hidden()
    token.focus()
    expect(token.get_by_role("tooltip")).to_be_visible()
    expect(token.get_by_role("tooltip")).to_contain_text("␣there 0.20")


def test_a_page_does_not_jump_when_it_is_rendered_again(tracker, written, seeded, actions, serving, visit):
    with under_way(tracker, seeded) as run:
        page = visit(f"{serving(written, actions=actions)}/live").page
        expect(page.locator("#curves .js-plotly-plot .main-svg").first).to_be_visible()
        page.evaluate(
            """() => { window.positions = new Set(); const record = () => {
                const { top } = document.querySelector('#rollouts').getBoundingClientRect();
                window.positions.add(Math.round(top + scrollY));
                requestAnimationFrame(record) }; record() }"""
        )
        tracker.step(run, 12, {"loss": 0.1})
        expect(page.get_by_role("heading", level=1)).to_contain_text("step 13 of 48")
        page.wait_for_timeout(1000)
        assert len(page.evaluate("[...window.positions]")) == 1, "the part below the chart does not move"


def test_every_page_can_be_reached_by_keyboard(url, visit):
    page = visit(url).page
    expect(page.get_by_role("link", name="Cycle 3", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Zoom", exact=True)).to_have_count(2)  # the charts come after the table
    reached = set()
    for _ in range(60):  # the page has 31 places to stop at; then it begins anew
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.innerText || document.activeElement.ariaLabel || ''"))
    assert {"Cycles", "Compare", "Lineage", "Download plot", "CSV", "Cycle 3"} <= reached
