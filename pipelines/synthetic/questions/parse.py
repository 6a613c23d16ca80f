"""How a base is asked for questions, and what of its reply is one."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

WRITE = """Read the passage, then write {count} questions about facts that it states, each with its answer.

- Whoever answers will not have the passage: a question names who or what it is about.
- Ask in other words than the passage's own.
- The answer is a name, a number or a few words that stand in the passage.
- One JSON object a line and nothing else: {{"question": "…", "answer": "…"}}

Passage:
{passage}"""

IN_LINES = re.compile(
    r"^[\W\d]*(?:q(?:uestion)?)\W*\d*\W*[:.]\W*(?P<question>.+?)\s*\n[\W\d]*(?:a(?:nswer)?)\W*\d*\W*[:.]\s*(?P<answer>.+?)\s*$",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True)
class Draft:
    question: str
    answer: str


def request(passage: str, count: int) -> str:
    return WRITE.format(count=count, passage=passage)


def drafts_in(reply: str) -> list[Draft]:
    """JSON wherever it stands in the reply, else lines of "Q: … A: …"."""
    found = list(_objects(reply))
    return found or [Draft(m["question"].strip(), m["answer"].strip(" *")) for m in IN_LINES.finditer(reply)]


def _objects(reply: str) -> Iterator[Draft]:
    decoder, place = json.JSONDecoder(), reply.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(reply, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            question, answer = (value.get(name) for name in ("question", "answer"))
            if isinstance(answer, int | float):
                answer = str(answer)
            if isinstance(question, str) and isinstance(answer, str):
                yield Draft(question.strip(), answer.strip())
        place = reply.find("{", end)
