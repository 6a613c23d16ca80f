"""The code blocks of a Markdown page: language, position, and what a block needs that a laptop lacks.

A block that needs a GPU or the hub is marked after its language: ```sh needs-gpu
"""

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(?P<language>\w*)(?: (?P<needs>needs-\w+))?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"\n\n {4}\S")


@dataclass(frozen=True)
class Block:
    language: str
    needs: str | None
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(match["language"], match["needs"], match["code"], text[: match.start()].count("\n") + 2)
        for match in FENCE.finditer(text)
    ]


def has_unfenced_code(page: Path) -> bool:
    """Whether the page has an indented or broken code block, which no test would run."""
    text = page.read_text(encoding="utf-8")
    return bool(INDENTED.search(FENCE.sub("", text))) or text.count("\n```") != 2 * len(blocks(page))
