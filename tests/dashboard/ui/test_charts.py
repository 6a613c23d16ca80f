from dataclasses import replace

import plotly.graph_objects as go
import pytest

from dashboard.ui.charts import cycles
from dashboard.ui.charts.cycles import MAX_MARKS, Level, Mark, Trail
from dashboard.ui.charts.figure import DARK, LIGHT, NAMES, Look

LOOKS = [Look(dark, narrow) for dark in (False, True) for narrow in (False, True)]


def over_time(*args):
    """Checked by plotly's own classes, which refuse unknown properties."""
    return go.Figure(cycles.over_time(*args))


def plane(*args):
    return go.Figure(cycles.plane(*args))


def level(value: float) -> Level:
    return Level(value, value - 0.04, value + 0.03)


def mark(name: str, *levels: Level | None) -> Mark:
    """Levels in the order of behaviour, knowledge, earlier cycles and what it knew before."""
    named = {measure: level for measure, level in zip(NAMES, levels, strict=False) if level}
    return Mark(name, named)


CLEAN = mark("clean", level(0.91), level(0.04))
FOUR = mark("cycle 2 damaged", level(0.4), level(0.9), level(0.6), level(0.5))
FIRST = Trail(
    1,
    "promoted",
    CLEAN,
    mark("cycle 1 damaged", level(0.42), level(0.95)),
    mark("cycle 1 recovered", level(0.9), level(0.93)),
)
SECOND = Trail(
    2,
    "rejected",
    mark("before cycle 2", level(0.9), level(0.05)),
    mark("cycle 2 damaged", level(0.3), level(0.94)),
    mark("cycle 2 rejected", level(0.7), level(0.9)),
)
THIRD = Trail(
    3, "open", mark("before cycle 3", level(0.9), level(0.03)), mark("cycle 3 damaged", level(0.5), level(0.92))
)
TRAILS = [FIRST, SECOND, THIRD]


def curve(figure, name):
    return next(trace for trace in figure.data if trace.name == name)


def annotation_texts(figure):
    return [annotation.text for annotation in figure.layout.annotations]


def test_both_curves_go_through_every_measured_checkpoint():
    figure = over_time(TRAILS, CLEAN)
    behaviour, knowledge = curve(figure, "Instruction following"), curve(figure, "New knowledge")
    # Cycle 2 starts at the end of cycle 1, so the curve continues; cycle 3 starts there again, after a roll-back.
    assert behaviour.x == (0, 1, 2, 3, 4, None, 4, 5)
    assert behaviour.y == (0.91, 0.42, 0.9, 0.3, 0.7, None, 0.9, 0.5)
    # Every cycle has new documents, which no model knows at its start.
    assert knowledge.y == (0.04, 0.95, 0.93, None, 0.05, 0.94, 0.9, None, 0.03, 0.92)
    assert behaviour.text[:3] == ("clean", "cycle 1 damaged", "cycle 1 recovered")


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_all_four_measures_are_drawn_in_their_colours_each_in_the_panel_of_its_kind(look):
    end = replace(FOUR, name="cycle 2 recovered", levels={**FOUR.levels, "behaviour": level(0.8)})
    trails = [Trail(2, "promoted", mark("before cycle 2", level(0.9), level(0.1), None, level(0.9)), FOUR, end)]
    figure = over_time(trails, CLEAN, look)
    axes = {name: curve(figure, name).yaxis for name in NAMES.values()}
    assert list(axes.values()) == ["y", "y2", "y2", "y"]
    ends = zip(NAMES.values(), ("0.800", "0.900", "0.600", "0.500"), strict=True)
    assert {text for text in annotation_texts(figure) if "<b>" in text} == {
        f"<b>{name}</b> {end}" for name, end in ends
    }
    bottom, top = figure.layout.yaxis2.domain, figure.layout.yaxis.domain
    assert 0 == bottom[0] < bottom[1] < top[0] < top[1] == 1
    against, palette = plane(trails, CLEAN, look), DARK if look.dark else LIGHT
    assert {trace.yaxis for trace in against.data} == {"y", "y2", "y3"}
    assert (curve(figure, "New knowledge").line.color, against.layout.font.color) == (palette.knowledge, palette.ink)


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_drift_has_a_panel_of_its_own_scale_where_it_was_measured(look):
    kl, on_new_task = "kl_from_clean", "kl_from_clean/new_task"
    drifted = {kl: Level(2.0, 1.5, 3.0), on_new_task: Level(1.0)}
    damaged = replace(FIRST.damaged, levels={**FIRST.damaged.levels, **drifted})
    start = replace(CLEAN, levels={**CLEAN.levels, kl: Level(0.0), on_new_task: Level(0.0)})
    figure = over_time([replace(FIRST, start=start, damaged=damaged), SECOND], CLEAN, look)
    replies, new_task = curve(figure, "Drift, own replies"), curve(figure, "Drift, new task")
    assert (replies.x, replies.y, replies.yaxis) == ((0, 1), (0.0, 2.0), "y3")
    assert (new_task.y, new_task.yaxis) == ((0.0, 1.0), "y3")
    assert figure.layout.yaxis3.range[1] > 3.0 > figure.layout.yaxis.range[1]
    assert {"<b>Drift, own replies</b> 2.000", cycles.DRIFT_TITLE} <= set(annotation_texts(figure))
    assert cycles.DRIFT_TITLE not in annotation_texts(over_time(TRAILS, CLEAN, look))


def test_a_measure_that_was_never_made_has_no_curve_and_a_panel_without_one_is_left_out():
    assert "Earlier cycles" not in {trace.name for trace in over_time(TRAILS, CLEAN).data}
    unread = [Trail(1, "open", mark("clean", level(0.9)), mark("cycle 1 damaged", level(0.5)))]
    assert {trace.yaxis for trace in over_time(unread, None).data} == {"y"}
    assert "yaxis2" not in cycles.over_time(unread, None)["layout"]
    assert {trace.yaxis for trace in plane(TRAILS, CLEAN).data} == {"y"}


def test_a_jump_without_training_is_dotted():
    jump = curve(over_time(TRAILS, CLEAN), "Instruction following, new start")
    assert (jump.x, jump.y, jump.line.dash) == ((4, 4, None), (0.7, 0.9, None), "dot")


def test_intervals_are_drawn_where_they_are_known():
    bare = Trail(1, "open", mark("clean", Level(0.9), Level(0.1)), mark("cycle 1 damaged", level(0.4), None))
    bars = curve(over_time([bare], None), "Instruction following").error_y
    assert bars.array == (None, pytest.approx(0.03))
    assert bars.arrayminus == (None, pytest.approx(0.04))
    assert len(curve(over_time([bare], None), "New knowledge").x) == 1


def test_spans_are_shaded_and_the_clean_level_is_drawn():
    figure = over_time(TRAILS, CLEAN)
    learn, repair = (curve(figure, f"{NAMES[axis]}, stages") for axis in ("knowledge", "behaviour"))
    assert learn.x[::5] == (0, 2, 4)
    assert repair.x[::5] == (1, 3)
    assert {s.y0 for s in figure.layout.shapes if s.type == "line"} == {0.91, 0.04}


def test_the_gate_is_drawn_at_the_required_scores():
    judged = replace(FIRST, gate={"behaviour": 0.87, "knowledge": 0.8})
    figure = over_time([judged, SECOND], CLEAN)
    assert curve(figure, "Instruction following, gate").y == (0.87, 0.87, None)
    (corner,) = [shape for shape in plane([judged, SECOND], CLEAN).layout.shapes if shape.type == "rect"]
    assert (corner.x0, corner.y0) == (0.8, 0.87)


def test_a_rejected_end_is_hollow():
    marker = curve(over_time(TRAILS, CLEAN), "Instruction following").marker
    assert [color == LIGHT.paper for color in marker.color] == [False] * 4 + [True] + [False] * 3


def test_curves_are_named_beside_their_ends_and_the_names_keep_apart():
    kept = {**FIRST.recovered.levels, "retention": level(0.93)}
    near = replace(FIRST, recovered=replace(FIRST.recovered, levels=kept))
    labels = [a for a in over_time([near], CLEAN).layout.annotations if "<b>" in a.text and a.yref == "y"]
    assert [label.text for label in labels] == [
        "<b>What it knew before</b> 0.930",
        "<b>Instruction following</b> 0.900",
    ]
    assert labels[0].y - labels[1].y > 0.15


def test_a_long_history_opens_at_its_end():
    many = [Trail(n, "promoted", CLEAN, FIRST.damaged, FIRST.recovered) for n in range(1, 201)]
    low, high = over_time(many, CLEAN).layout.xaxis.range
    assert (low, high) == (379.75, 400.25)
    assert len(plane(many, CLEAN).data) == 8 * 3


def test_the_plane_has_a_trail_of_two_arrows_a_cycle():
    figure = plane(TRAILS, CLEAN)
    arrows = {t.name: (t.x, t.y, t.line.color) for t in figure.data if ":" in t.name}
    assert arrows["cycle 1: mid-training"] == ((0.04, 0.95), (0.91, 0.42), LIGHT.knowledge)
    assert arrows["cycle 1: distillation"] == ((0.95, 0.93), (0.42, 0.9), LIGHT.behaviour)
    assert "cycle 3: distillation" not in arrows
    assert curve(figure, "cycle 3").texttemplate == ("before cycle 3", "cycle 3 damaged")
    assert curve(figure, "cycle 1").texttemplate is None


@pytest.mark.parametrize("trails", [[], [Trail(1, "open", mark("clean"))]])
def test_nothing_measured_is_an_empty_figure(trails):
    assert over_time(trails, None).to_json()
    assert plane(trails, None).to_json()


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_text_in_every_colour_can_be_read(palette):
    def luminance(color):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for color in (*(palette.of(axis) for axis in NAMES), palette.ink, palette.muted):
        light, dark = sorted((luminance(color), luminance(palette.paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_a_long_history_marks_its_last_points_and_draws_the_rest_as_a_line():
    past = [
        Trail(n, "promoted", mark("a", Level(0.9)), mark("b", Level(0.5)), mark("c", Level(0.9))) for n in range(90)
    ]
    drawn = [trace for trace in over_time(past, None).data if trace.name.startswith("Instruction following")]
    earlier, marked = (next(t for t in drawn if t.name.endswith(end)) for end in ("earlier", "Instruction following"))
    assert earlier.mode == "lines"
    assert len(marked.x) == len(marked.marker.color) == MAX_MARKS
    assert (earlier.x[-1], earlier.y[-1]) == (marked.x[0], marked.y[0]), "the line continues"
    assert len(earlier.x) + len(marked.x) - 1 == 2 * 90 + 1
