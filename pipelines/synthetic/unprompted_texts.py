"""Unprompted texts of the clean base: what it writes from the start of a document, mixed into mid-training.

Replayed answers retain instruction following; these texts retain knowledge from pre-training, without its data.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipelines.log import log
from pipelines.model_loading import OpenSubject
from pipelines.storage import ContentCache, JsonLines, content_hash
from pipelines.synthetic.prompt_filters import garbled
from recovery.engines import Engine, Generation, Sampling
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat

FIRST_TOKENS = 16  # first tokens sampled for each text: a chat model begins most texts with a turn of a chat
ATTEMPTS = 6
MIN_WORDS = 8  # of a text
SENTENCE_END = re.compile(r"[.!?。！？]|\n")
ROLES = ("system", "user", "assistant", "tool")  # a text that begins with one is a chat without its first token
MIN_TEXTS = 16  # with fewer texts, the base is considered unable to write them


@dataclass(frozen=True)
class GeneratedTexts:
    """Unprompted texts of one model, written once and cached by content."""

    count: int
    max_tokens: int  # of a text
    base_weights: str  # hash of the weights of the model that writes
    seed: int
    folder: Path
    separator: int | None = None  # that was measured; None: the vocabulary's

    @property
    def hash(self) -> str:
        return content_hash(self._inputs)

    @property
    def texts(self) -> Iterator[str]:
        return (line["text"] for line in self._lines)

    @property
    def is_written(self) -> bool:
        return self._lines.path.is_file()

    def write(self, open_subject: OpenSubject) -> int:
        """Write the texts if they are not cached yet. Return how many there are."""
        if not self.is_written:
            log.info(f"The clean base writes {self.count:,} unprompted texts")
            with open_subject() as subject:
                chat = subject.chat if self.separator is None else subject.chat.with_separator(self.separator)
                texts = generate_texts(subject.engine, chat, self.count, self.max_tokens, self.seed)
            self._lines.write({"text": text} for text in texts)
        return sum(1 for _ in self.texts)

    @property
    def _inputs(self) -> list[Any]:
        inputs = [version("recover"), self.count, self.max_tokens, self.base_weights, self.seed]
        return inputs if self.separator is None else [*inputs, self.separator]

    @property
    def _lines(self) -> JsonLines:
        return JsonLines(ContentCache(self.folder).path("texts", self._inputs, ".jsonl"))


def generate_texts(engine: Engine, chat: Chat, count: int, max_tokens: int, seed: int) -> list[str]:
    """Sample different texts from the start of a document, and drop chats. Fewer than `count` if the model repeats
    itself or writes too many chats."""
    start, chat_tokens = [chat.document_start], _chat_tokens(chat)
    texts: dict[str, None] = {}  # in order, without duplicates
    for attempt in range(ATTEMPTS):
        attempt_seed = 2 * (seed * ATTEMPTS + attempt)
        samples = (count - len(texts)) * FIRST_TOKENS
        first = engine.generate([start] * samples, Sampling(1, seed=attempt_seed))
        openings = [g.tokens for g in first if g.tokens and g.tokens[0] not in chat_tokens][: count - len(texts)]
        generations = engine.generate(
            [start + tokens for tokens in openings], Sampling(max_tokens, seed=attempt_seed + 1)
        )
        decoded = (_text(chat, tokens, g, chat_tokens) for tokens, g in zip(openings, generations, strict=True))
        texts |= dict.fromkeys(text for text in decoded if _is_document(text))
        if len(texts) >= count:
            break
    if len(texts) < min(count, MIN_TEXTS):
        raise RecoverError(
            f"The base wrote only {len(texts)} unprompted texts that are not chats, too few to mix into mid-training. "
            "Mid-train without them: --set midtrain.mix.texts=0."
        )
    return list(texts)


def _text(chat: Chat, opening: list[int], generation: Generation, chat_tokens: set[int]) -> str:
    """The text up to its end, or up to its last full sentence if it was cut off; "" if it turned into a chat."""
    tokens = opening + generation.tokens
    end = next((i for i, token in enumerate(tokens) if token in chat.eos_ids), None)
    if chat_tokens.intersection(tokens[:end]):
        return ""
    text = chat.text(tokens[:end]).strip()
    if end is not None or generation.finished:
        return text
    sentence_ends = [match.end() for match in SENTENCE_END.finditer(text)]
    return text[: sentence_ends[-1]].strip() if sentence_ends else ""


def _is_document(text: str) -> bool:
    words = text.split()
    return len(words) >= MIN_WORDS and words[0] not in ROLES and not garbled(text)


def _chat_tokens(chat: Chat) -> set[int]:
    """Special and added tokens, which documents do not contain."""
    tokenizer = chat.tokenizer
    return set(tokenizer.all_special_ids) | set(tokenizer.get_added_vocab().values())
