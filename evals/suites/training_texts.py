"""What a model knows of texts like those it was trained on, where there are no questions: passages or conversations.

Passages are read without the chat template, so that instruction following has no influence. Bits per byte also fall
when a model only learns the style of the documents. A cloze, in which the model continues a passage where a name or
number comes next, does not.

The value of a conversation is the geometric mean of the probabilities of its answers' tokens, from 0 to 1. It needs no
generation, so it costs little; but it also rises with the style of the answers, which questions do not.
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex  # type: ignore[import-untyped]

from evals.jsonl import read_rows, text_field
from evals.results import LOWER_IS_BETTER, Item, Metric, Result, item_key
from evals.subject import Subject, encode_pair, sum_logprobs, with_cost_meter
from recovery.engines import Sampling
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat

Conversation = dict[str, Any]  # its `messages`, and perhaps `tools`

WINDOW = 1024  # tokens scored at once; windows do not overlap
CONVERSATION_WINDOW = 2048  # tokens of a conversation; the rest is left out
ANSWERS = "answers"  # the task of conversations
MIN_CONTEXT_WORDS = 3  # with less context a name can only be guessed
CLOZES_PER_PASSAGE = 4
SENTENCE_GAP = 64  # characters before a name that show whether it begins a sentence

NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?!\w)")
NAMES = regex.compile(r"\p{Lu}[\w'’-]*(?: \p{Lu}[\w'’-]*)*")
SENTENCE_START = re.compile(r"(?:^|[.!?\n\"“(*#>-])\s*$")  # here a capital letter does not mark a name


@dataclass(frozen=True)
class Cloze:
    context: str
    target: str  # the name or number that comes next


def read_passages(path: str | Path) -> list[str]:
    """Read a text file, a folder of text files, or JSON Lines `{"text": …}`."""
    path = Path(path)
    if path.suffix == ".jsonl":
        return [text_field(row, "text") for row in read_rows(path)]
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    try:
        texts = [file.read_text(encoding="utf-8-sig") for file in files]
    except (OSError, UnicodeDecodeError) as error:
        raise RecoverError(
            f"Cannot read the passages in {path} as UTF-8 text ({error}). Check the path and its encoding."
        ) from error
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise RecoverError(f"The passages in {path} are empty. Give passages held out from the documents.")
    return texts


def measure_bits_per_byte(subject: Subject, passages: Sequence[str], *, data: str) -> Result:
    """Measure bits per byte, which are comparable between models with different tokenizers."""
    subject, cost = with_cost_meter(subject)
    passages = list(dict.fromkeys(passages))
    bits = [-value / math.log(2) for value in _logprobs(subject, passages)]
    sizes = [len(passage.encode()) for passage in passages]
    items = [
        Item(item_key(passage), passage, "", False, {"bits_per_byte": b / size})
        for passage, b, size in zip(passages, bits, sizes, strict=True)
    ]
    metrics = {"bits_per_byte": Metric.from_ratio(bits, [float(size) for size in sizes])}
    settings = {"window": WINDOW, LOWER_IS_BETTER: True}
    return Result("passages", "knowledge", data, metrics, items, settings, *cost())


def measure_cloze(subject: Subject, passages: Sequence[str], *, data: str) -> Result:
    """Measure whether the model continues with the name or number that comes next, and how likely it finds it."""
    subject, cost = with_cost_meter(subject)
    sources = {c.context: (c, passage) for passage in dict.fromkeys(passages) for c in find_clozes(passage)}
    if not sources:
        raise RecoverError(f"The passages of {data} contain no names or numbers to predict. Give other passages.")
    contexts, targets = _encode_clozes(subject, [cloze for cloze, _ in sources.values()])
    # A few tokens more than the longest target, which the model may tokenize differently.
    sampling = Sampling(max(map(len, targets)) + 2, temperature=0.0)
    generations = subject.engine.generate(contexts, sampling)
    scores = subject.engine.logprobs([context + target for context, target in zip(contexts, targets, strict=True)])
    likelihoods = [sum_logprobs(row[-len(target) :]) / len(target) for row, target in zip(scores, targets, strict=True)]
    items, by_passage = [], defaultdict(list)
    for (cloze, passage), generation, likelihood in zip(sources.values(), generations, likelihoods, strict=True):
        reply = subject.chat.text(generation.tokens)
        verdicts = {"reference": cloze.target, "answer_logprob": likelihood}
        items.append(Item(item_key(cloze.context), cloze.context, reply, _starts_with(reply, cloze.target), verdicts))
        by_passage[passage].append(items[-1])
    # Clozes of one passage are correlated, so passages are the independent samples.
    sums = [math.fsum(item.verdicts["answer_logprob"] for item in group) for group in by_passage.values()]
    metrics = {
        "recall": Metric.from_groups([[item.passed for item in group] for group in by_passage.values()]),
        "answer_logprob": Metric.from_ratio(sums, [float(len(group)) for group in by_passage.values()]),
    }
    settings = {"a_passage": CLOZES_PER_PASSAGE}
    return Result("cloze", "knowledge", data, metrics, items, settings, *cost())


def find_clozes(passage: str) -> list[Cloze]:
    """Find the first mentions of names and numbers, which cannot be copied from the text before them."""
    spans = [m.span() for m in NUMBER.finditer(passage)]
    for name in NAMES.finditer(passage):
        start = name.start()
        if not SENTENCE_START.search(passage[max(0, start - SENTENCE_GAP) : start]):
            spans.append(name.span())
    clozes: list[Cloze] = []
    for start, end in sorted(spans):
        if len(clozes) == CLOZES_PER_PASSAGE:
            break
        context, target = passage[:start], passage[start:end]
        is_first_mention = target not in context and len(target) > 1
        if is_first_mention and context[-1:].isspace() and len(context.split()) >= MIN_CONTEXT_WORDS:
            clozes.append(Cloze(context, target))
    return clozes


def _encode_clozes(subject: Subject, clozes: list[Cloze]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the tokens of the contexts and those of the targets."""
    contexts, targets = [], []
    for cloze in clozes:
        context, target = encode_pair(subject.encode, cloze.context, cloze.target)
        contexts.append([subject.chat.document_start, *context[1 - WINDOW :]])
        targets.append(target)
    return contexts, targets


def _starts_with(reply: str, target: str) -> bool:
    """Whether the reply starts with the target as a whole word, or as a whole number: 12.5 is not 12."""
    reply = reply.lstrip()
    rest = reply[len(target) :]
    goes_on = rest[:1].isalnum() or (target[-1:].isdigit() and re.match(r"[.,]\d", rest))
    return reply.startswith(target) and not goes_on


def _logprobs(subject: Subject, passages: list[str]) -> list[float]:
    """Return the log-likelihood of each passage; every token is predicted once."""
    rows: list[list[int]] = []
    owners: list[int] = []
    for i, passage in enumerate(passages):
        tokens = subject.encode(passage)
        for start in range(0, len(tokens), WINDOW):
            rows.append([subject.chat.document_start, *tokens[start : start + WINDOW]])
            owners.append(i)
    totals = [0.0] * len(passages)
    for i, values in zip(owners, subject.engine.logprobs(rows), strict=True):
        totals[i] += sum_logprobs(values)
    return totals


def has_conversations(path: str | Path) -> bool:
    """Whether a file of JSON lines has conversations instead of passages."""
    return Path(path).suffix == ".jsonl" and "messages" in read_rows(path)[0][1]


def read_conversations(path: str | Path) -> list[Conversation]:
    return [row for _, row in read_rows(path)]


def conversation_key(conversation: Conversation) -> str:
    turns = [f"{m['role']}: {m['content']}{m.get('tool_calls') or ''}" for m in conversation["messages"]]
    return item_key("\n".join(turns))


def measure_answers(subject: Subject, conversations: Sequence[Conversation], *, data: str) -> Result:
    """Measure `likelihood`: the mean over the conversations."""
    subject, cost = with_cost_meter(subject)
    encoded = [(conversation, *encode_conversation(subject.chat, conversation)) for conversation in conversations]
    rows = {conversation_key(row[0]): row for row in encoded if any(row[2])}
    if not rows:
        raise RecoverError(
            f"No conversation of {data} has an answer that fits into {CONVERSATION_WINDOW:,} tokens. Give another file."
        )
    scores = subject.engine.logprobs([tokens for _, tokens, _ in rows.values()])
    items = []
    for (key, (conversation, _, targets)), values in zip(rows.items(), scores, strict=True):
        learned = [value for value, target in zip(values, targets[1:], strict=True) if target]
        likelihood = math.exp(sum_logprobs(learned) / len(learned))
        prompt, answer = (conversation["messages"][i]["content"] for i in (0, -1))
        items.append(Item(key, prompt, answer, False, {"likelihood": likelihood}))
    metrics = {"likelihood": Metric.from_values([item.verdicts["likelihood"] for item in items])}
    return Result(ANSWERS, "knowledge", data, metrics, items, {"window": CONVERSATION_WINDOW}, *cost())


def encode_conversation(
    chat: Chat, conversation: Conversation, window: int | None = CONVERSATION_WINDOW
) -> tuple[list[int], list[bool]]:
    """The tokens, and which of them are answers; none where the template cannot render the conversation as it is."""
    try:
        tokens, targets = chat.conversation(conversation["messages"], conversation.get("tools"))
    except RecoverError:
        return [], []
    return tokens[:window], targets[:window]
