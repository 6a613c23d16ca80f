import httpx

from dashboard.ui.charts.figure import Look, blank
from dashboard.ui.html import PLOTLY, chart
from dashboard.ui.layout import SCRIPT, read_static


def test_the_library_is_served_under_the_name_that_the_pages_request(url):
    assert f'"{PLOTLY}"' in SCRIPT
    answer = httpx.get(f"{url}/{PLOTLY}", trust_env=False)
    assert answer.text == read_static(PLOTLY)
    assert "immutable" in answer.headers["cache-control"]
    assert "MIT" in read_static("plotly-basic-LICENSE.txt")


def test_text_in_a_figure_cannot_leave_its_attribute():
    figure = blank(Look(), 230, {"l": 1})
    figure["layout"]["title"] = {"text": '"><script>hacked()</script>${hacked()}{{hacked()}}'}
    element = chart("one", figure)
    assert element.count("<") == element.count(">") == 2
    assert "{" not in element
    assert "height: 230px" in element


def test_a_screen_reader_gets_the_title_of_a_chart():
    assert 'role="img" aria-label="Over the cycles"' in chart("over-time", blank(Look(), 230, {}))
