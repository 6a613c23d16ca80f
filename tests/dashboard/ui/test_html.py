import httpx
import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from dashboard.ui.charts.figure import Look, blank
from dashboard.ui.html import PLOTLY, Cell, badge, bdi, card, chart, escape_text, join, link, table
from dashboard.ui.layout import SCRIPT, read_static

HOSTILE = "<b onclick='x'>${x}{{x}}\u202e\x00"
ESCAPED = "&lt;b onclick=&#39;x&#39;&gt;&#36;&#123;x}&#123;&#123;x}}\ufffd\ufffd"


def test_text_is_escaped_and_markup_is_not():
    assert card(HOSTILE, Markup("<i>done</i>")) == f'<section class="card"><h2>{ESCAPED}</h2><i>done</i></section>'
    assert badge(HOSTILE).lower().count(ESCAPED) == 2
    cells = [Cell(HOSTILE, HOSTILE, HOSTILE), Cell(HOSTILE, HOSTILE, HOSTILE)]
    assert table(HOSTILE, [HOSTILE, HOSTILE], [cells], save=HOSTILE).count(ESCAPED) == 11
    assert link(HOSTILE, HOSTILE, q=HOSTILE).endswith(f">{ESCAPED}</a>")
    assert "<b" not in link(HOSTILE, "x")
    assert join(["<", Markup("<br>")], " · ") == "&lt; · <br>"


def test_text_from_the_record_is_cut_and_isolated():
    assert bdi("x" * 1000, 5) == "<bdi>xxxx…</bdi>"
    assert bdi("<") == "<bdi>&lt;</bdi>"
    assert escape_text(escape_text("<")) == "&lt;", "escaped once"


def test_a_missing_value_is_an_error():
    with pytest.raises(UndefinedError):
        badge()


def test_the_library_is_served_under_the_name_that_the_pages_request(url):
    assert f'"{PLOTLY}"' in SCRIPT
    answer = httpx.get(f"{url}/{PLOTLY}", trust_env=False)
    assert answer.text == read_static(PLOTLY)
    assert "immutable" in answer.headers["cache-control"]
    assert "MIT" in read_static("plotly-basic-LICENSE.txt")


def test_a_chart_has_its_title_and_text_in_it_cannot_leave_its_attribute():
    figure = blank(Look(), 230, {"l": 1})
    figure["layout"]["title"] = {"text": '"><script>hacked()</script>${hacked()}{{hacked()}}'}
    element = chart("one", figure)
    assert element.count("<") == element.count(">") == 2
    assert "{" not in element
    assert "height: 230px" in element
    assert 'role="img" aria-label="Over the cycles"' in chart("over-time", figure), "for a screen reader"
