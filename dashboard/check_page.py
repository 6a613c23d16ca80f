"""What a fine-tune has forgotten, as a single HTML file to mail, from the object that `recover check --json` prints."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from dashboard.html_report import PAGE_STYLE, POLICY
from dashboard.ui.components import Cell, badge, card, page_title, table
from dashboard.ui.jinja import bdi, load
from dashboard.ui.layout import STYLE
from db.column_types import now

COLUMNS = ("", "base", "fine-tune", "difference", "95 % interval", "items")
BADGES = {"passed": "done", "failed": "failed", "inconclusive": "inconclusive"}
_html = load("layout.html")


def check_page(data: Mapping[str, Any]) -> str:
    title = f"{data['checkpoint']} beside {data['base']}"
    sections = [
        page_title(bdi(title, 200), Markup("<p>{}</p>").format(data["summary"]), badge(BADGES[data["outcome"]])),
        card("Forgotten", _table("What the fine-tune has forgotten", data["forgotten"])),
        card("Learned", _table("What the fine-tune has learned", data["learned"])) if data["learned"] else "",
        card("Notes", Markup("").join(Markup("<p>{}</p>").format(note) for note in data["notes"]))
        if data["notes"]
        else "",
    ]
    style = Markup(f"{STYLE}\n{PAGE_STYLE}")
    return str(
        _html.report(
            title=title, time=now(), policy=POLICY, style=style, program=Markup(), script=Markup(), sections=sections
        )
    )


def _table(caption: str, rows: list[dict[str, Any]]) -> Markup:
    return table(caption, COLUMNS, [_row(row) for row in rows])


def _row(row: Mapping[str, Any]) -> list[Cell]:
    low, high = row["ci95"]
    interval = "–" if low is None else f"{_signed(low)} to {_signed(high)}"
    name = ("– " if row["suite"] != "knowledge" and (row["kind"] or row["task"]) else "") + row["name"]
    numbers = (f"{row['base']:.3f}", f"{row['model']:.3f}", _signed(row["difference"]), interval, f"{row['n']:,}")
    return [Cell(name), *(Cell(text, "number") for text in numbers)]


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")
