"""The files in `dashboard/static`: styles, scripts and the chart library that ships with the package."""

from pathlib import Path

STATIC = Path(__file__).parents[1] / "static"


def read_static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
