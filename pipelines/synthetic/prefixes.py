"""Prompts about what earlier cycles taught: a passage of their documents begins, and the model goes on.

Never their questions: those the gate keeps, to judge how much of each earlier cycle is still known. A model that had
practised on them would be judged by its practice.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random

from pipelines.documents import before_document
from pipelines.documents.passages import passages_of
from pipelines.documents.snapshot import CorpusSnapshot
from recovery.models.chat import Chat
from recovery.states import Prompt

EARLIER_DOMAIN = "earlier"  # the domain of what earlier cycles taught, read or gone on with
FEWEST_WORDS = 8  # of a passage that is worth going on with
FROM, TO = 0.1, 0.75  # how much of a passage is given: anything from hardly a name to the last fact


def document_prefixes(corpora: Sequence[CorpusSnapshot], count: int, seed: int) -> list[str]:
    """So many beginnings of passages, from each corpus alike and from all over it; fewer where there are not enough."""
    found = []
    for number, corpus in enumerate(corpora):
        share = count // len(corpora) + (number < count % len(corpora))
        rng = Random(f"{seed}/{corpus.hash}")
        found += [_opening(passage, rng) for passage in _some(_passages(corpus), share, rng)]
    return list(dict.fromkeys(found))


def as_prefix_prompts(texts: Sequence[str], chat: Chat) -> list[Prompt]:
    """As mid-training reads them: where a document begins, and not in a chat."""
    before = before_document(chat)
    spelt = partial(chat.tokenizer, add_special_tokens=False, split_special_tokens=True)
    return [Prompt(text, [before, *spelt(text)["input_ids"]], EARLIER_DOMAIN) for text in texts]


def _passages(corpus: CorpusSnapshot) -> Iterator[str]:
    for text in corpus.texts:
        yield from passages_of(text, FEWEST_WORDS)


def _some(passages: Iterator[str], count: int, rng: Random) -> list[str]:
    """Each as likely as any other, read once and never all held."""
    kept: list[str] = []
    for number, passage in enumerate(passages):
        place = number if number < count else rng.randrange(number + 1)
        if place < len(kept):
            kept[place] = passage
        elif place < count:
            kept.append(passage)
    return kept


def _opening(passage: str, rng: Random) -> str:
    words = list(re.finditer(r"\S+", passage))
    given = max(2, int(len(words) * rng.uniform(FROM, TO)))
    return passage[: words[given - 1].end()]
