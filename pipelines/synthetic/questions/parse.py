"""The prompt that makes the base write questions on a passage, and the parser of its reply."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

QUESTION_PROMPT = """\
Read the passage, then write {count} questions about facts that it states, each with its answer.

- Whoever answers will not have the passage: a question names who or what it is about.
- Ask in other words than the passage's own.
- The answer is a name, a number or a few words that stand in the passage.
- One JSON object a line and nothing else: {{"question": "…", "answer": "…"}}

Passage:
{passage}"""

QUESTION_ANSWER_LINES = re.compile(
    r"^[\W\d]*(?:q(?:uestion)?)\W*\d*\W*[:.]\W*(?P<question>.+?)\s*\n[\W\d]*(?:a(?:nswer)?)\W*\d*\W*[:.]\s*(?P<answer>.+?)\s*$",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True)
class Draft:
    question: str
    answer: str


def question_prompt(passage: str, count: int) -> str:
    return QUESTION_PROMPT.format(count=count, passage=passage)


def parse_drafts(reply: str) -> list[Draft]:
    """The JSON objects anywhere in the reply, or else its lines of "Q: … A: …"."""
    return list(_json_drafts(reply)) or [
        Draft(m["question"].strip(), m["answer"].strip(" *")) for m in QUESTION_ANSWER_LINES.finditer(reply)
    ]


def _json_drafts(reply: str) -> Iterator[Draft]:
    decoder, start = json.JSONDecoder(), reply.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(reply, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            question, answer = (value.get(name) for name in ("question", "answer"))
            if isinstance(answer, int | float):
                answer = str(answer)
            if isinstance(question, str) and isinstance(answer, str):
                yield Draft(question.strip(), answer.strip())
        start = reply.find("{", end)
