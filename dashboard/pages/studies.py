"""All studies: what they claim, the verdicts, the intervals beside what the sources report, and the arms."""

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import gradio as gr
from markupsafe import Markup

from dashboard.ui.charts.figure import NAMES, WIDE_LIGHT, Look, Palette
from dashboard.ui.html import (
    Cell,
    Macro,
    bdi,
    card,
    join,
    link,
    links,
    load,
    nothing,
    page_title,
    score_cell,
    signed,
    table,
)
from dashboard.ui.polling import Dashboard, NotFound, PageRequest, poll
from db.headline_scores import MEASURES
from db.tables import Study

LOOKS = {  # by verdict: sign and style of its badge
    "supported": ("✓", "promoted"),
    "refuted": ("✕", "rejected"),
    "cannot tell": ("?", "inconclusive"),
    "no verdict": ("?", "inconclusive"),
}
PICTURE_NOTE = (
    "Filled: the mean over the seeds, with the interval that decided; hollow circles: the seeds. "
    "Diamond: what the source reports. Dashed: the claim's margin."
)
ARMS_NOTE = (
    "Means over the seeds; the arm whose scores have the largest sum comes first. "
    "By KL, hollow: arms with settings of their own."
)
WIDTH, NARROW_WIDTH, EDGE = 760, 360, 30
LINE, NARROW_LINE, NAME_WIDTH = 24, 40, 250  # of the picture of the arms
PANEL_HEIGHT = 260
CHARTED = ("behaviour", "knowledge")  # above the KL
CHARACTER = 6.2  # pixels
_html = load("studies.html")
head: Macro = _html.head


def page(app: gr.Blocks, dashboard: Dashboard) -> None:
    poll(app, dashboard, "studies", [gr.HTML(), gr.HTML(elem_id="studies")], render)


def render(request: PageRequest) -> list[Any]:
    studies = request.reader.studies(request.project.id)
    if not studies:
        return [page_title("Studies"), shipped(request)]
    if "study" not in request.query:
        return [page_title("Studies"), join(_summary(request, study) for study in studies)]
    study = next((study for study in studies if study.id == request.number("study")), None)
    if study is None:
        raise NotFound("There is no such study", link=link("studies", "All studies"))
    title = page_title(title_of(study), above=links([link("studies", "All studies")]))
    pictures = join(arm_pictures(study, request.look).values())
    arms = card("Arms", pictures + arm_table(study) + how_to_open(study, request.project.root), ARMS_NOTE)
    return [title, join([_summary(request, study), arms if study.arms else ""])]


def shipped(request: PageRequest) -> Markup:
    """The studies that come with recover, for a project that has run none."""
    studies = request.actions.shipped_studies()
    if not studies:
        raise NotFound(
            "No studies yet", "List the studies that come with recover, and run one:", ["recover study --list"]
        )
    rows = [
        [
            Cell(_html.jump(study) if study.results else bdi(study.name, 80)),
            Cell(bdi(study.declaration["title"], 300)),
            Cell(bdi(f"{study.declaration['source']}: {study.declaration['figure']}", 400)),
            Cell(verdicts_of(study) or nothing("none")),
        ]
        for study in studies
    ]
    finished = [study for study in studies if study.results]
    note = "This project has run no study. These come with recover; " + (
        f"{len(finished)} of them ran to the verdict." if finished else "none of them has run to its verdict yet."
    )
    table_of_all = table(
        "Studies that come with recover", ["Study", "Title", "Source", "Verdicts"], rows, save="studies"
    )
    run = _html.run_one("recover study NAME")
    sections = [section for study in finished for section in _shipped_sections(request, study)]
    return join([card("Studies that come with recover", table_of_all + run, note), *sections])


def _shipped_sections(request: PageRequest, study: Study) -> list[Markup]:
    """What a study that ships has shown: its claims, and its arms where their scores are at hand."""
    title = f"{title_of(study)}: {study.declaration['title']}"
    claims = claim_table(study) + picture(study, request.look)
    claims = card(title, claims, PICTURE_NOTE, id=f"{study.name}-{study.size}")
    arms = [card("Arms", join(arm_pictures(study, request.look).values()), ARMS_NOTE)] if study.arms else []
    return [claims, *arms]


def verdicts_of(study: Study) -> str:
    """How many of the claims came out how."""
    counts = Counter(claim["verdict"] for claim in study.claims if "verdict" in claim)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def _summary(request: PageRequest, study: Study) -> Markup:
    arms = link("studies", "arms", study=study.id)
    content = join([head(study, arms), claim_table(study), picture(study, request.look)])
    note = progress_of(study) or PICTURE_NOTE
    return card(f"{title_of(study)}: {study.declaration['title']}", content, note)


def claim_table(study: Study) -> Markup:
    rows = [
        [
            Cell(_html.claim(claim["text"], claim.get("control", ""))),
            Cell(_verdict(claim), "", claim.get("verdict")),
            Cell(bdi(f"{claim['metric']}: {claim['of']} less {claim['against']}{_group(claim)}", 200)),
            _interval(claim),
            Cell(signed(claim["source"]) if claim.get("source") is not None else nothing(), "number"),
            Cell(f"{'above 0' if claim['direction'] == 'above' else 'not below'}, {claim['margin']:g}"),
        ]
        for claim in study.claims
    ]
    columns = ["Claim", "Verdict", "Difference", "Measured", "Source", "Direction, margin"]
    return table(f"Claims of {study.name}", columns, rows, save=f"study-{study.name}-{study.size}")


def arm_table(study: Study) -> Markup:
    """Every arm on every seed: the four measures, and what it cost."""
    rows = [
        [
            Cell(bdi(f"{name}, seed {entry['seed']}", 80)),
            *(score_cell(entry["scores"].get(measure)) for measure in MEASURES),
            Cell(entry["steps"], "number"),
            Cell(f"{entry['pflops']:.4f}", "number", entry["pflops"]),
            Cell(f"{entry['seconds']:.0f}", "number", entry["seconds"]),
            Cell(bdi(entry["commit"], 120)),
        ]
        for name, entries in study.arms.items()
        for entry in entries
    ]
    columns = ["Arm", *NAMES.values(), "Steps", "PFLOPs", "Seconds", "Code"]
    return table(f"Arms of {study.name}", columns, rows, save=f"arms-{study.name}-{study.size}")


def picture(study: Study, look: Look = WIDE_LIGHT) -> Markup:
    """The interval of every claim beside the source's mark, as an SVG."""
    width, colours = _width(look), look.palette
    ends = [0.0] + [v for claim in study.claims for v in _values(claim)]
    step = _tick_step(max(ends) - min(ends))
    first, last = math.floor(min(ends) / step), math.ceil(max(ends) / step)
    last = max(last, first + 1)

    def x(value: float) -> float:
        return round(EDGE + (value - first * step) / ((last - first) * step) * (width - 2 * EDGE), 1)

    rows = [_picture_row(claim, x, colours, int(width / CHARACTER)) for claim in study.claims]
    ticks = [(x(number * step), signed(number * step, 2) if number else "0") for number in range(first, last + 1)]
    title = f"Differences that the claims of {study.name} are about"
    return _html.picture(width, rows, ticks, x(0.0), colours, title)


def arm_pictures(study: Study, look: Look = WIDE_LIGHT) -> dict[str, Markup]:
    """The measures of every arm, and above its KL to the clean model where that was measured, as SVGs by name."""
    means = dict(sorted(_means_of_arms(study).items(), key=lambda arm: -sum(arm[1].values())))
    kls = {name: kl for name, entries in study.arms.items() if math.isfinite(kl := _kl(entries))}
    numbers = {name: f"{number} " if kls else "" for number, name in enumerate(means, 1)}
    width = _width(look)
    names = _legend([m for m in MEASURES if any(m in arm for arm in means.values())], width)
    top = names[-1][1] + 14 if names else 0
    left, line = (EDGE, NARROW_LINE) if look.narrow else (NAME_WIDTH, LINE)
    rows = [
        {
            "name": f"{numbers[name]}{name}",
            "y": (y := top + line * number - line // 3),
            "text_y": y - 14 if look.narrow else y + 4,
            "marks": [(measure, _between(left, width - EDGE, value)) for measure, value in arm.items()],
        }
        for number, (name, arm) in enumerate(means.items(), 1)
    ]
    ticks = [(_between(left, width - EDGE, fifth / 5), f"{fifth / 5:g}") for fifth in range(6)]
    title = f"Scores of the arms of {study.name}"
    pictures = {"arms": _html.arms(width, top, top + line * len(rows), rows, ticks, names, look.palette, title)}
    is_charted = any(measure in means[name] for name in kls for measure in CHARTED)
    return pictures | ({"kl": _plane(study, means, kls, numbers, look)} if is_charted else {})


def _plane(
    study: Study,
    means: Mapping[str, Mapping[str, float]],
    kls: Mapping[str, float],
    numbers: Mapping[str, str],
    look: Look,
) -> Markup:
    """A panel for each of two measures. The KL has a logarithmic scale, and left of it 0, for what is too small."""
    width = _width(look)
    largest = max(kls.values()) or 0.1
    across = _round_numbers(min(kl for kl in (*kls.values(), largest) if kl >= largest / 1000), largest)

    def x(kl: float) -> float:
        share = math.log(kl / across[0]) / math.log(across[-1] / across[0]) if kl >= across[0] else -0.1
        return _between(2 * EDGE + 0.1 * width, width - EDGE, share)

    panels = list[dict[str, Any]]()
    for measure in CHARTED:
        scores = {name: means[name][measure] for name in kls if measure in means[name]}
        if not scores:
            continue
        # The clean model knows nothing of the documents: it does not decide the scale.
        deciding = [score for name, score in scores.items() if kls[name] or measure == "behaviour"]
        up = _ticks(deciding or list(scores.values()))
        top = 24 + len(panels) * (PANEL_HEIGHT + 52)
        points = [
            {
                "x": x(kls[name]),
                "y": _between(top + PANEL_HEIGHT, top, min(1.0, max(0.0, (score - up[0]) / (up[-1] - up[0])))),
                "is_recipe": not study.declaration["arms"].get(name, {}).get("settings"),
                "label": numbers[name] + ("" if up[0] <= score <= up[-1] else f"({score:.2f})"),
            }
            for name, score in scores.items()
        ]
        place_labels(points, (0.0, top - 14.0, width, top + PANEL_HEIGHT + 8.0))
        lines = [(_between(top + PANEL_HEIGHT, top, n / (len(up) - 1)), f"{tick:.4g}") for n, tick in enumerate(up)]
        panels.append({"measure": measure, "name": MEASURES[measure], "top": top, "up": lines, "points": points})
    ticks = [(x(0), "0"), *((x(kl), f"{kl:g}") for kl in across)]
    title = f"Scores of the arms of {study.name} by their KL to the clean model"
    return _html.plane(width, PANEL_HEIGHT, panels, ticks, look.palette, title)


def place_labels(points: Sequence[dict[str, Any]], area: tuple[float, float, float, float]) -> None:
    """Give each point the nearest place for its label in the area (left, top, right, bottom) where nothing else is."""
    taken = [(point["x"] - 6, point["y"] - 6, point["x"] + 6, point["y"] + 6) for point in points]
    for point in points:
        half = CHARACTER * len(point["label"].strip()) / 2 + 2
        places = [
            (point["x"] + (distance + half) * math.cos(turn), point["y"] - distance * math.sin(turn))
            for distance in (11, 20, 30, 42, 56)
            for turn in (math.pi * sixth / 6 for sixth in range(12))
        ]
        boxes = [(x - half, y - 5, x + half, y + 5) for x, y in places]
        fits = [n for n, box in enumerate(boxes) if _within(area, box)]
        chosen = next((n for n in fits if not any(_overlap(boxes[n], other) for other in taken)), fits[0])
        taken.append(boxes[chosen])
        point["label_x"], point["label_y"] = (round(place, 1) for place in places[chosen])


def _within(area: Sequence[float], box: Sequence[float]) -> bool:
    return area[0] < box[0] and area[1] < box[1] and box[2] < area[2] and box[3] < area[3]


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _ticks(values: Sequence[float]) -> list[float]:
    """Evenly spaced round numbers around the values, over a tenth at least."""
    low = max(0.0, min(*values, max(values) - 0.1))
    high = max(*values, low + 0.1)
    step = _tick_step(high - low)
    return [number * step for number in range(math.floor(low / step), math.ceil(high / step) + 1)]


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, from below the one to above the other."""
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 2)
    numbers = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
    first = max(number for number in numbers if number <= low)
    last = min(number for number in numbers if number > high)
    shown = [number for number in numbers if first <= number <= last]
    return shown if len(shown) <= 7 else [number for number in shown if number in (first, last) or _is_power(number)]


def _is_power(number: float) -> bool:
    return math.isclose(math.log10(number), round(math.log10(number)))


def _means_of_arms(study: Study) -> dict[str, dict[str, float]]:
    return {
        name: {
            measure: fmean(values)
            for measure in MEASURES
            if (values := [entry["scores"][measure] for entry in entries if entry["scores"].get(measure) is not None])
        }
        for name, entries in study.arms.items()
    }


def _kl(entries: Sequence[Mapping[str, Any]]) -> float:
    """The mean KL to the clean model; rounding may leave it below 0. NaN where it is no number or was not measured."""
    kls = [entry["values"]["kl_to_clean"] for entry in entries if "kl_to_clean" in entry.get("values", {})]
    mean = fmean(math.nan if kl is None else kl for kl in kls) if kls else math.nan
    return mean if math.isnan(mean) else max(0.0, mean)


def _legend(measures: Sequence[str], width: int) -> list[tuple[float, float, str, str]]:
    """The place, the measure and the name of each mark, in as many lines as they take."""
    names, x, y = list[tuple[float, float, str, str]](), 14.0, 12.0
    for measure in measures:
        space = 36 + CHARACTER * len(MEASURES[measure])
        if x + space > width and names:
            x, y = 14.0, y + 18
        names.append((x, y, measure, MEASURES[measure]))
        x += space
    return names


def _width(look: Look) -> int:
    return NARROW_WIDTH if look.narrow else WIDTH


def _between(first: float, last: float, share: float) -> float:
    return round(first + share * (last - first), 1)


def how_to_open(study: Study, root: str) -> Markup:
    """The commands that serve the arms computed here: each seed, and each arm of several cycles, has a project."""
    folder = Path(root) / ".recover/studies" / f"{study.name}-{study.size}-{study.hash[:8]}"
    projects = (str(name.parents[1]) for name in sorted(folder.glob("seed-*/.recover/name")))
    return join(_html.command(f"recover dashboard --project {shlex.quote(project)}") for project in projects)


def title_of(study: Study) -> str:
    return f"{study.name.replace('-', ' ').capitalize()}, {study.size}"


def progress_of(study: Study) -> str:
    """How far it is, while it has no verdict."""
    done, planned = (study.results or {}).get("arms", []), (study.results or {}).get("planned")
    return "" if study.finished_at else f"{len(done)} of {planned or '?'} arms and seeds are done"


def _picture_row(claim: Mapping[str, Any], x: Any, colours: Palette, characters: int) -> dict[str, Any]:
    margin = claim["margin"] if claim["direction"] == "above" else -claim["margin"]
    text = claim["text"]
    return {
        "text": text if len(text) <= characters else text[: characters - 1] + "…",
        "colour": getattr(colours, LOOKS.get(claim.get("verdict", ""), ("", "muted"))[1]),
        "margin": x(margin),
        "seeds": [x(value) for value in claim.get("seeds", []) if value is not None],
        **{key: x(claim[key]) if claim.get(key) is not None else None for key in ("estimate", "low", "high", "source")},
    }


def _values(claim: Mapping[str, Any]) -> Sequence[float]:
    margin = claim["margin"] if claim["direction"] == "above" else -claim["margin"]
    named = [claim.get(key) for key in ("estimate", "low", "high", "source")]
    return [margin, *(value for value in (*claim.get("seeds", []), *named) if value is not None)]


def _tick_step(span: float) -> float:
    """A round number that divides the span into at most eight"""
    size = 10.0 ** math.floor(math.log10(span / 8))
    return next(size * factor for factor in (1, 2, 5, 10, 20) if span / (size * factor) <= 8)


def _verdict(claim: Mapping[str, Any]) -> Markup:
    if "verdict" not in claim:
        return nothing("not yet")
    icon, css = LOOKS.get(claim["verdict"], ("?", ""))
    needed = f"it would take {claim['needed']}" if claim["verdict"] == "cannot tell" else claim.get("needed", "")
    return _html.verdict(claim["verdict"], icon, css, needed)


def _interval(claim: Mapping[str, Any]) -> Cell:
    if claim.get("estimate") is None:
        return Cell(nothing(), "number", "")
    ends = [signed(claim[end]) if claim.get(end) is not None else "" for end in ("low", "high")]
    return Cell(_html.interval(signed(claim["estimate"]), *ends, claim.get("seeds_alone")), "number", claim["estimate"])


def _group(claim: Mapping[str, Any]) -> str:
    items = f", answers of {claim['items']} tokens" if claim.get("items") else ""
    return items + (f", less the same on {claim['minus_items']}" if claim.get("minus_items") else "")
