"""The code blocks of a page: what they are written in, where they stand, and what they need that a laptop lacks.

A block that needs a GPU or the hub says so behind its language: ```sh needs-gpu
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
        Block(found["language"], found["needs"], found["code"], text[: found.start()].count("\n") + 2)
        for found in FENCE.finditer(text)
    ]


def unfenced(page: Path) -> bool:
    """Whether code stands in the page that no fence tells the language of, so that nobody would run it."""
    text = page.read_text(encoding="utf-8")
    return bool(INDENTED.search(FENCE.sub("", text))) or text.count("\n```") != 2 * len(blocks(page))
