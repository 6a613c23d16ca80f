"""What the scripts share: arguments, processes of their own, the file of rows that an interrupted command goes on with,
a Markdown table."""

import json
import multiprocessing
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

Row = dict[str, Any]
T = TypeVar("T")


def script_parser(description: str | None) -> ArgumentParser:
    return ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)


def in_new_process(function: Callable[..., T], *arguments: Any) -> T:
    """What the function returns. Nothing that other measurements have left in memory counts as its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def read_rows(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def add_rows(file: Path, rows: Iterable[Row], describe: Callable[[Mapping[str, Any]], str]) -> None:
    """Write each row as it is measured, and print what it says."""
    for row in rows:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        print(describe(row), flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table with aligned columns."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [head, ["-" * (w - (i > 0)) + ":" * (i > 0) for i, w in enumerate(widths)], *rows]
    for line in lines:
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        print("| " + " | ".join(cells) + " |")
