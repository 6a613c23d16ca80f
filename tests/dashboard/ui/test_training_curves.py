"""Curves: smoothing that counts steps, thinning that keeps spikes, panels for what there is."""

import math
from itertools import combinations

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.ui.charts import Look
from dashboard.ui.signal_shape_chart import by_place, half_lies_in
from dashboard.ui.training_curves import PANELS, Run, curves, smoothed, thinned

series = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400).map(lambda values: list(enumerate(values)))


@given(told=series, smoothing=st.sampled_from([0.0, 0.5, 0.8, 0.95]))
def test_smoothing_stays_within_what_was_told(told, smoothing):
    drawn = smoothed(told, smoothing)
    assert [step for step, _ in drawn] == [step for step, _ in told]
    low, high = min(value for _, value in told), max(value for _, value in told)
    assert all(low - 1e-6 <= value <= high + 1e-6 for _, value in drawn)
    assert drawn[0][1] == pytest.approx(told[0][1])


def test_a_sparse_series_is_smoothed_by_its_steps():
    dense, sparse = [(0, 0.0), (1, 1.0)], [(0, 0.0), (100, 1.0)]
    assert smoothed(dense, 0.95)[-1][1] == pytest.approx(1 / 1.95)
    assert smoothed(sparse, 0.95)[-1][1] > 0.98, "a hundred steps on, the first is forgotten"


@given(told=series, most=st.integers(4, 60))
def test_thinning_keeps_the_extremes_and_the_order(told, most):
    kept = thinned(told, most)
    assert set(kept) <= set(told)
    assert [step for step, _ in kept] == sorted({step for step, _ in kept})
    values = [value for _, value in told]
    assert {min(values), max(values)} <= {value for _, value in kept}
    assert len(kept) <= max(most, 2) or len(told) <= most


def test_a_panel_for_every_quantity_and_a_curve_for_every_run():
    told = Run(
        "Distillation", "behaviour", {"loss": [(0, 1.0), (1, 0.5)], "kl": [(0, math.nan), (1, 0.2)], "odd": [(0, 1)]}
    )
    other = Run("Mid-training", "knowledge", {"loss": [(0, 2.0)]})
    figure = go.Figure(curves([told, other], Look()))
    assert [note.text for note in figure.layout.annotations] == [PANELS["loss"][0], PANELS["kl"][0]]
    assert [list(trace.x) for trace in figure.data] == [[0, 1], [0], [1], []]
    assert figure.data[0].line.color != figure.data[1].line.color
    assert curves([Run("x", "behaviour", {})], Look()) is None


def test_panels_stand_side_by_side_and_never_over_each_other():
    told = Run("x", "behaviour", {name: [(0, 1.0), (1, 2.0)] for name in list(PANELS)[:5]})
    layout = curves([told], Look())["layout"]
    rooms = [(layout[f"xaxis{n}"]["domain"], layout[f"yaxis{n}"]["domain"]) for n in ("", 2, 3, 4, 5)]
    assert all(0 <= low < high <= 1.000001 for room in rooms for low, high in room)
    for one, other in combinations(rooms, 2):
        assert any(a[1] < b[0] or b[1] < a[0] for a, b in zip(one, other, strict=True))
    assert rooms[0][1] == rooms[2][1], "three in a row"


def test_a_logarithmic_scale_leaves_out_what_it_cannot_show():
    run = Run("x", "behaviour", {"loss": [(0, 0.0), (1, 1e-3)]})
    figure = go.Figure(curves([run], Look(narrow=True), smoothing=0.8, log=True))
    assert figure.layout.yaxis.type == "log"
    assert [list(trace.x) for trace in figure.data] == [[1], [1]], "faint as told, strong as smoothed"


def test_where_the_divergence_lies():
    assert half_lies_in([10.0, 0.1, 0.1, 0.1]) == 0.25
    assert half_lies_in([1.0, 1.0, 1.0, 1.0]) == 0.5
    assert half_lies_in([0.0, 0.0]) == 1.0
    assert by_place([[], []], Look()) is None
    highest, mean = go.Figure(by_place([[1.0, 2.0], [3.0]], Look())).data
    assert (list(highest.y), list(mean.y)) == ([3.0, 2.0], [2.0, 2.0])
