r"""What a teacher in context reads: a conversation whose last user turn, and perhaps system prompt, hold the context.

A template contains `{prompt}`, the text of the last user turn, and `{context}`. It is the new text of that turn; with
`<system>` and `<user>`, what follows each of them is the text of the system prompt and of the user turn:

    {prompt}\n\nAn example of a response:\n{context}
    <system>{context}<user>{prompt}
"""

import re
from collections.abc import Sequence
from typing import Any

from recovery.errors import RecoverError

SOLUTION = (
    "{prompt}\n\nHere is a correct solution:\n{context}\n\n"
    "Make sure that you understand it, then solve the problem in your own words."
)
DEMONSTRATION = "{prompt}\n\nHere is an example of a good response:\n{context}\n\nNow write a response of your own."
SYSTEM_PROMPT = "<system>{context}<user>{prompt}"
POLICY = "<system>Follow this policy in every reply, without mentioning it:\n{context}<user>{prompt}"

PASSAGE = (
    "Facts that you know:\n{context}\n\n"
    "Answer from these facts, and do not mention where you know them from.\n\n{prompt}"
)

PARTS = re.compile(r"<system>(?P<system>.*)<user>(?P<user>.*)", re.DOTALL)
FIELDS = re.compile(r"\{(prompt|context)\}")


def check_template(template: str) -> str:
    """Return the template; raise if a field is missing, or if `{prompt}` is not in the user turn."""
    parts = PARTS.fullmatch(template)
    fields, user = set(FIELDS.findall(template)), parts["user"] if parts else template
    if fields != {"prompt", "context"} or "{prompt}" not in user or "{prompt}" in (parts["system"] if parts else ""):
        raise RecoverError(
            f"The template {template!r} must contain {{prompt}} and {{context}}, and {{prompt}} in the user's part. "
            "Correct distill.context_template."
        )
    return template


def with_context(messages: Sequence[dict[str, Any]], template: str, context: str) -> list[dict[str, Any]]:
    """Return the conversation as the teacher reads it. Earlier turns, and turns after the user's last, stay."""
    last = max(i for i, message in enumerate(messages) if message["role"] == "user")
    values = {"prompt": messages[last]["content"], "context": context}

    def fill(text: str) -> str:
        return FIELDS.sub(lambda field: values[field[1]], text)

    parts = PARTS.fullmatch(template)
    shown = [*messages]
    shown[last] = {**messages[last], "content": fill(parts["user"] if parts else template)}
    if not parts:
        return shown
    if shown[0]["role"] == "system":
        return [{**shown[0], "content": f"{shown[0]['content']}\n\n{fill(parts['system'])}"}, *shown[1:]]
    return [{"role": "system", "content": fill(parts["system"])}, *shown]
