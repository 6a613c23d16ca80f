"""The pages in a real browser: what a reader sees, without an error on the console."""

import pytest
from playwright.sync_api import expect

from dashboard.html_report import report
from tests.browser import WIDTHS
from tests.db.seeded import seed

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
        page = visit(address, width=width).page
        expect(page.locator("#first")).to_have_count(0)  # the first paint, which is replaced with what is opened in it
        measures = page.locator(".measures")
        for scores in ("0.925 → 0.225 → 0.800", "0.050 → 0.950 → 0.900", "0.800 → 0.850", "0.850 → 0.400 → 0.700"):
            expect(measures).to_contain_text(scores)
        expect(page.get_by_text("10 lost, none gained")).to_be_hidden()
        page.get_by_text("What was lost and gained").click()
        expect(page.get_by_text("10 lost, none gained")).to_be_visible()
        expect(page.locator(table)).to_contain_text(text)
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0], "nothing sticks out"


def test_an_open_page_follows_the_record_and_stays_the_same_otherwise(tracker, written, serving, visit):
    page = visit(serving(written)).page
    expect(page.get_by_text("recover demo")).to_be_visible()
    seed(tracker, cycles=1)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cycle 1 promoted")
    expect(page.locator("#over-time").get_by_text("New knowledge")).to_be_visible()
    page.evaluate("document.querySelector('#over-time .js-plotly-plot').dataset.same = 'yes'")
    page.wait_for_timeout(6_000)
    expect(page.locator("#over-time [data-same]")).to_have_count(1)


def test_a_report_draws_its_charts_without_a_server(reader, tmp_path, visit):
    (project,) = reader.projects()
    file = tmp_path / "report.html"
    file.write_text(report(reader, project, 2), encoding="utf-8")
    session = visit(file.as_uri())
    for name in ("over-time", "plane", "curves"):
        expect(session.page.locator(f"[data-chart={name}] .scatterlayer .trace")).not_to_have_count(0)
    assert session.hosts == {""}, "nothing is fetched"


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
