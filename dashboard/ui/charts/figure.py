"""What all charts share: colours, empty figures and axes.

Figures are plain dictionaries as plotly's JavaScript takes them. Plotly's own Python classes check every value again,
which took half of a page's time; the tests have them check. Nothing here knows a page, a database or a browser.

Blue is instruction following (and distillation, which recovers it), orange is knowledge (and mid-training, which adds
it), teal what the model knew before, magenta what earlier cycles taught. The colours of one panel stay apart under the
common colour blindnesses; the shapes of the marks repeat the distinction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

Axis = Literal["behaviour", "knowledge", "earlier", "retention"]
Trace = dict[str, Any]
NAMES: dict[Axis, str] = {
    "behaviour": "Instruction following",
    "knowledge": "New knowledge",
    "earlier": "Earlier cycles",
    "retention": "What it knew before",
}
FONT = "'IBM Plex Sans', system-ui, -apple-system, 'Segoe UI', sans-serif"


@dataclass(frozen=True)
class Palette:
    behaviour: str
    knowledge: str
    earlier: str
    retention: str
    ink: str
    muted: str
    grid: str
    paper: str
    promoted: str
    rejected: str
    inconclusive: str

    def of(self, axis: Axis) -> str:
        return str(getattr(self, axis))


LIGHT = Palette("#0067b1", "#b85c00", "#a32a76", "#0d766f", "#1c2430", "#5b6675", "#e4e8ee", "#ffffff", "#1a7f4b",
                "#b3261e", "#6b3fc0")  # fmt: skip
DARK = Palette("#63b3f0", "#f0a33c", "#f08cc8", "#5ccfc4", "#e8ecf2", "#9aa6b5", "#2a323d", "#151a21", "#57c48b",
               "#ff8a80", "#bda2f5")  # fmt: skip


@dataclass(frozen=True)
class Look:
    """The screen that a figure is drawn for."""

    dark: bool = False
    narrow: bool = False

    @property
    def palette(self) -> Palette:
        return DARK if self.dark else LIGHT


WIDE_LIGHT = Look()


class Figure(TypedDict):
    data: list[Trace]
    layout: dict[str, Any]


def blank(look: Look, height: int, margin: Mapping[str, int]) -> Figure:
    """A figure with one pair of axes and no data."""
    palette, clear = look.palette, "rgba(0,0,0,0)"
    # A saved picture has the card's background: light text of the dark look could not be read on another.
    layout: dict[str, Any] = dict(
        height=height, margin=margin, showlegend=False, paper_bgcolor=palette.paper, plot_bgcolor=clear
    )
    layout["font"] = dict(family=FONT, size=12, color=palette.ink)
    layout["hoverlabel"] = dict(bgcolor=palette.paper, bordercolor=palette.muted, font=dict(color=palette.ink))
    layout["modebar"] = dict(bgcolor=clear, color=palette.muted, activecolor=palette.ink)
    # A thumb that scrolls past must not zoom, and a refresh keeps the reader's zoom.
    layout |= dict(dragmode=False if look.narrow else "zoom", uirevision="keep")
    return Figure(data=[], layout=layout | dict(xaxis=new_axis(look), yaxis=new_axis(look)))


def new_axis(look: Look) -> dict[str, Any]:
    lines = dict(gridcolor=look.palette.grid, zeroline=False)
    return lines | dict(tickfont=dict(color=look.palette.muted), tickangle=0, fixedrange=look.narrow)


def axis_title(text: str, look: Look) -> dict[str, Any]:
    return dict(text=text, font=dict(size=12, color=look.palette.muted), standoff=8)


def scatter(**options: Any) -> Trace:
    return dict(type="scatter", **options)
