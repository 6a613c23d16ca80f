"""Prompts about what earlier cycles taught: the beginning of a passage of their documents, for the model to continue.

The questions of earlier cycles are never used as prompts: the gate needs them to measure how much of each earlier
cycle the model still knows, and training on them would spoil that.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random

from pipelines.documents.corpus import CorpusSnapshot
from pipelines.documents.passages import passages_of
from recovery.models.chat_template import Chat
from recovery.states import Prompt

EARLIER_DOMAIN = "earlier"  # domain of prompts and documents of earlier cycles
MIN_WORDS = 8  # of a passage
MIN_SHARE, MAX_SHARE = 0.1, 0.75  # of a passage's words that the prefix has


def document_prefixes(corpora: Sequence[CorpusSnapshot], count: int, seed: int) -> list[str]:
    """Prefixes of up to `count` random passages, equally many from each corpus."""
    prefixes = []
    for number, corpus in enumerate(corpora):
        share = count // len(corpora) + (number < count % len(corpora))
        rng = Random(f"{seed}/{corpus.hash}")
        prefixes += [opening_of(passage, rng) for passage in _sample(_passages(corpus), share, rng)]
    return list(dict.fromkeys(prefixes))


def as_prefix_prompts(texts: Sequence[str], chat: Chat) -> list[Prompt]:
    """Tokenize prefixes as mid-training reads documents: from a document's start, without the chat template."""
    tokenize = partial(chat.tokenizer, add_special_tokens=False, split_special_tokens=True)
    return [Prompt(text, [chat.document_start, *tokenize(text)["input_ids"]], EARLIER_DOMAIN) for text in texts]


def _passages(corpus: CorpusSnapshot) -> Iterator[str]:
    for text in corpus.texts:
        yield from passages_of(text, MIN_WORDS)


def _sample(passages: Iterator[str], count: int, rng: Random) -> list[str]:
    """Reservoir sampling: uniform, in one pass, holding only `count` passages in memory."""
    reservoir: list[str] = []
    for number, passage in enumerate(passages):
        index = number if number < count else rng.randrange(number + 1)
        if index < len(reservoir):
            reservoir[index] = passage
        elif index < count:
            reservoir.append(passage)
    return reservoir


def opening_of(passage: str, rng: Random) -> str:
    words = list(re.finditer(r"\S+", passage))
    length = max(2, int(len(words) * rng.uniform(MIN_SHARE, MAX_SHARE)))
    return passage[: words[length - 1].end()]
