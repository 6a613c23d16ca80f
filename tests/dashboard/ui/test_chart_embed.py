"""What draws the charts ships with the pages, and is fetched under the name it has."""

import httpx

from dashboard.ui.chart_embed import PROGRAM, chart
from dashboard.ui.charts import Look, blank
from dashboard.ui.layout import SCRIPT
from dashboard.ui.static_files import read_static


def test_the_program_is_served_under_the_name_the_pages_ask_for(url):
    assert f'"{PROGRAM}"' in SCRIPT
    answer = httpx.get(f"{url}/{PROGRAM}", trust_env=False)
    assert answer.text == read_static(PROGRAM)
    assert "immutable" in answer.headers["cache-control"]
    assert "MIT" in read_static("plotly-basic-LICENSE.txt")


def test_words_in_a_figure_cannot_leave_it():
    figure = blank(Look(), 230, {"l": 1})
    figure["layout"]["title"] = {"text": '"><script>hacked()</script>${hacked()}{{hacked()}}'}
    place = chart("one", figure)
    assert place.count("<") == place.count(">") == 2
    assert "{" not in place
    assert "height: 230px" in place
