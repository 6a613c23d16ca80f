import math
from itertools import combinations

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.ui.charts.figure import Look
from dashboard.ui.charts.runs import (
    PANELS,
    RunCurves,
    curves,
    divergence_by_position,
    downsample,
    half_divergence_share,
    smooth,
)

series = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400).map(lambda values: list(enumerate(values)))


@given(points=series, smoothing=st.sampled_from([0.0, 0.5, 0.8, 0.95]))
def test_smoothed_values_stay_within_the_range_of_the_series(points, smoothing):
    drawn = smooth(points, smoothing)
    assert [step for step, _ in drawn] == [step for step, _ in points]
    low, high = min(value for _, value in points), max(value for _, value in points)
    assert all(low - 1e-6 <= value <= high + 1e-6 for _, value in drawn)
    assert drawn[0][1] == pytest.approx(points[0][1])


def test_a_sparse_series_is_smoothed_by_its_steps():
    dense, sparse = [(0, 0.0), (1, 1.0)], [(0, 0.0), (100, 1.0)]
    assert smooth(dense, 0.95)[-1][1] == pytest.approx(1 / 1.95)
    assert smooth(sparse, 0.95)[-1][1] > 0.98, "after a hundred steps the first value has no weight"


@given(points=series, max_points=st.integers(4, 60))
def test_downsampling_preserves_the_extremes_and_the_order(points, max_points):
    fewer = downsample(points, max_points)
    assert set(fewer) <= set(points)
    assert [step for step, _ in fewer] == sorted({step for step, _ in fewer})
    values = [value for _, value in points]
    assert {min(values), max(values)} <= {value for _, value in fewer}
    assert len(fewer) <= max(max_points, 2) or len(points) <= max_points


def test_a_panel_for_every_quantity_and_a_curve_for_every_run():
    first = RunCurves(
        "Distillation", "behaviour", {"loss": [(0, 1.0), (1, 0.5)], "kl": [(0, math.nan), (1, 0.2)], "odd": [(0, 1)]}
    )
    other = RunCurves("Mid-training", "knowledge", {"loss": [(0, 2.0)]})
    figure = go.Figure(curves([first, other], Look()))
    assert [note.text for note in figure.layout.annotations] == [PANELS["loss"][0], PANELS["kl"][0]]
    assert [list(trace.x) for trace in figure.data] == [[0, 1], [0], [1], []]
    assert figure.data[0].line.color != figure.data[1].line.color
    assert curves([RunCurves("x", "behaviour", {})], Look()) is None


def test_panels_stand_side_by_side_and_never_over_each_other():
    run = RunCurves("x", "behaviour", {name: [(0, 1.0), (1, 2.0)] for name in list(PANELS)[:5]})
    layout = curves([run], Look())["layout"]
    domains = [(layout[f"xaxis{n}"]["domain"], layout[f"yaxis{n}"]["domain"]) for n in ("", 2, 3, 4, 5)]
    assert all(0 <= low < high <= 1.000001 for domain in domains for low, high in domain)
    for one, other in combinations(domains, 2):
        assert any(a[1] < b[0] or b[1] < a[0] for a, b in zip(one, other, strict=True))
    assert domains[0][1] == domains[2][1], "three in a row"


def test_a_logarithmic_scale_leaves_out_what_it_cannot_show():
    run = RunCurves("x", "behaviour", {"loss": [(0, 0.0), (1, 1e-3)]})
    figure = go.Figure(curves([run], Look(narrow=True), smoothing=0.8, log=True))
    assert figure.layout.yaxis.type == "log"
    assert [list(trace.x) for trace in figure.data] == [[1], [1]], "faint as logged, strong as smoothed"


def test_where_the_divergence_lies():
    assert half_divergence_share([10.0, 0.1, 0.1, 0.1]) == 0.25
    assert half_divergence_share([1.0, 1.0, 1.0, 1.0]) == 0.5
    assert half_divergence_share([0.0, 0.0]) == 1.0
    assert divergence_by_position([[], []], Look()) is None
    highest, mean = go.Figure(divergence_by_position([[1.0, 2.0], [3.0]], Look())).data
    assert (list(highest.y), list(mean.y)) == ([3.0, 2.0], [2.0, 2.0])
