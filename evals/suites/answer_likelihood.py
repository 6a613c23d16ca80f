"""How likely a model finds the answers of a training file: what is still known of it, without questions on it.

The value of a conversation is the geometric mean of the probabilities of its answers' tokens, from 0 to 1. It needs no
generation, so it costs little; but it also rises with the style of the answers, which questions do not.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from evals.cost_meter import with_cost_meter
from evals.jsonl import read_rows
from evals.results import Item, Metric, Result, item_key
from evals.subject import Subject
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat, Message

TASK = "answers"
WINDOW = 2048  # tokens of a conversation; the rest is left out
MIN_LOGPROB = -100.0  # floor for impossible tokens (or NaN)


def has_conversations(path: str | Path) -> bool:
    """Whether a file of JSON lines has conversations instead of passages."""
    return Path(path).suffix == ".jsonl" and "messages" in read_rows(path)[0][1]


def read_conversations(path: str | Path) -> list[list[Message]]:
    return [row["messages"] for _, row in read_rows(path)]


def conversation_key(messages: Sequence[Message]) -> str:
    return item_key("\n".join(f"{message['role']}: {message['content']}" for message in messages))


def measure_answers(subject: Subject, conversations: Sequence[list[Message]], *, data: str) -> Result:
    """Measure `likelihood`: the mean over the conversations."""
    subject, cost = with_cost_meter(subject)
    rows = {conversation_key(messages): (messages, *encode(subject.chat, messages)) for messages in conversations}
    rows = {key: row for key, row in rows.items() if any(row[2])}
    if not rows:
        raise RecoverError(
            f"No conversation of {data} has an answer that fits into {WINDOW:,} tokens. Give another file."
        )
    scores = subject.engine.logprobs([tokens for _, tokens, _ in rows.values()])
    items = []
    for (key, (messages, _, targets)), values in zip(rows.items(), scores, strict=True):
        learned = [max(value, MIN_LOGPROB) if value == value else MIN_LOGPROB
                   for value, target in zip(values, targets[1:], strict=True) if target]  # fmt: skip
        likelihood = math.exp(math.fsum(learned) / len(learned))
        prompt, answer = messages[0]["content"], messages[-1]["content"]
        items.append(Item(key, prompt, answer, False, {"likelihood": likelihood}))
    metrics = {"likelihood": Metric.from_values([item.verdicts["likelihood"] for item in items])}
    return Result(TASK, "knowledge", data, metrics, items, {"window": WINDOW}, *cost())


def encode(chat: Chat, messages: list[Message]) -> tuple[list[int], list[bool]]:
    """The tokens, and which of them are answers; none where the template cannot render the conversation as it is."""
    try:
        tokens, targets = chat.conversation(messages)
    except RecoverError:
        return [], []
    return tokens[:WINDOW], targets[:WINDOW]
