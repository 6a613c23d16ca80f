"""Chat rows that ask about a name in the documents and answer with the documents' own sentences about it.

A model that reads documents learns to continue them. In a chat it recalls little of them, most of all when its chat
behaviour is preserved by training beside them. These rows connect the two. Nothing is generated: a model may be too
small to write questions.
"""

from collections.abc import Iterable, Iterator
from random import Random

import regex  # type: ignore[import-untyped]

from recovery.models.chat_template import Chat, Message
from recovery.samples import Sample

MAX_MENTIONS = 300_000  # names in sentences: enough for a long training
MAX_SENTENCES = 3  # in an answer
MIN_WORDS = 4  # of a sentence
REQUESTS = (
    "Tell me about {name}.",
    "What do you know about {name}?",
    "Who or what is {name}?",
    "Give me a few facts about {name}.",
    "Describe {name}.",
    "Write a short note about {name}.",
)
MARKUP = regex.compile(r"^(?:[-*#>|]+|\d+[.)]|[QA]:)\s*")  # at the start of a line or sentence
# Several capitalised words, or one that does not begin the sentence.
NAME = regex.compile(r"\p{Lu}[\w'’-]+(?: \p{Lu}[\w'’-]+)+|(?<=[\p{Ll},;] )\p{Lu}[\w'’-]+")
ARTICLES = ("The ", "A ", "An ")


def recall_rows(texts: Iterable[str], chat: Chat, seed: int) -> list[Sample]:
    """Rows about the names in the texts; the answer's tokens are the targets."""
    rng = Random(f"recall/{seed}")
    rows = []
    for name, mentions in _sentences_by_name(texts).items():
        rng.shuffle(mentions)
        for start in range(0, len(mentions), MAX_SENTENCES):
            answer = " ".join(mentions[start : start + MAX_SENTENCES])
            rows.append(_sample(rng.choice(REQUESTS).format(name=name), answer, chat))
    return rows


def _sample(request: str, answer: str, chat: Chat) -> Sample:
    messages: list[Message] = [{"role": "user", "content": request}, {"role": "assistant", "content": answer}]
    tokens, targets = chat.conversation(messages)
    return Sample(tokens, targets, prompt=request)


def _sentences_by_name(texts: Iterable[str]) -> dict[str, list[str]]:
    by_name: dict[str, dict[str, None]] = {}
    mentions = 0
    for text in texts:
        for sentence in sentences(text):
            for name in names(sentence):
                by_name.setdefault(name, {})[sentence] = None
                mentions += 1
        if mentions > MAX_MENTIONS:
            break
    return {name: list(about) for name, about in by_name.items()}


def sentences(text: str) -> Iterator[str]:
    """Statements without list or heading marks; no questions."""
    for line in text.splitlines():
        for sentence in regex.split(r"(?<=[.!?。！？])\s+", MARKUP.sub("", line.strip())):
            sentence = MARKUP.sub("", sentence)
            if len(sentence.split()) >= MIN_WORDS and sentence.endswith((".", "!", "。", "！")):
                yield sentence


def names(sentence: str) -> Iterator[str]:
    """Capitalised phrases, without a leading article."""
    for match in NAME.finditer(sentence):
        name = match[0]
        for article in ARTICLES:
            name = name.removeprefix(article)
        yield name
