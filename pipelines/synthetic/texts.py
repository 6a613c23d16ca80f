"""What the clean base knows in its own words: texts it writes on an empty page, read again beside new documents.

Replay keeps how it answers; this keeps what it was pre-trained on, and nobody needs the documents of that.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pipelines.documents import before_document, document_end
from pipelines.files import write_atomic
from pipelines.log import log
from pipelines.synthetic.paraphrased_corpus import Speaks
from pipelines.synthetic.prompt_filters import garbled
from recovery.engines import Engine, Generation, Sampling
from recovery.errors import RecoverError
from recovery.models.chat import Chat

BEGINNINGS = 16  # first tokens drawn for each text: a chat model begins most of what it writes with a turn of a chat
ATTEMPTS = 6
FEWEST_WORDS = 8  # of a text that says something
STOP = re.compile(r"[.!?。！？]|\n")
ROLES = ("system", "user", "assistant", "tool")  # a chat that was cut where it began
FEWEST = 16  # texts below which a base cannot be said to recollect anything


@dataclass(frozen=True)
class GeneratedTexts:
    """So many texts of one model, kept by what decides them and written once."""

    count: int
    longest: int  # tokens
    model: str  # the weights' hash
    seed: int
    folder: Path

    @property
    def hash(self) -> str:
        said = [version("recover"), self.count, self.longest, self.model, self.seed]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    @property
    def texts(self) -> Iterator[str]:
        with self._file.open(encoding="utf-8") as lines:
            yield from (json.loads(line)["text"] for line in lines)

    def write(self, speaks: Speaks) -> int:
        """How many there are, written now unless they were before."""
        if not self._file.is_file():
            log.info(f"the clean base writes {self.count:,} texts on an empty page, of what it knows")
            with speaks() as subject:
                found = generate_texts(subject.engine, subject.chat, self.count, self.longest, self.seed)
            write_atomic(self._file, (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in found))
        return sum(1 for _ in self.texts)

    @property
    def _file(self) -> Path:
        return self.folder / f"recollections-{self.hash[:16]}.jsonl"


def generate_texts(engine: Engine, chat: Chat, count: int, longest: int, seed: int) -> list[str]:
    """What the model writes where a document begins, without chats, none twice; fewer, if it will not write so many."""
    empty, apart = [before_document(chat)], _not_of_documents(chat)
    kept: dict[str, None] = {}
    for attempt in range(ATTEMPTS):
        luck = 2 * (seed * ATTEMPTS + attempt)
        wanted = (count - len(kept)) * BEGINNINGS
        first = engine.generate([empty] * wanted, Sampling(1, seed=luck))
        begun = [g.tokens for g in first if g.tokens and g.tokens[0] not in apart][: count - len(kept)]
        written = engine.generate([empty + tokens for tokens in begun], Sampling(longest, seed=luck + 1))
        texts = (_text(chat, begin, g, apart) for begin, g in zip(begun, written, strict=True))
        kept |= dict.fromkeys(text for text in texts if _is_a_document(text))
        if len(kept) >= count:
            break
    if len(kept) < min(count, FEWEST):
        raise RecoverError(
            f"the base wrote only {len(kept)} texts of its own beside chats, so there is nothing to recollect; "
            "mid-train with --set midtrain.mix.texts=0"
        )
    return list(kept)


def _text(chat: Chat, begin: list[int], written: Generation, apart: set[int]) -> str:
    """Up to its end, or to its last full stop where there was no room for that; nothing, where it became a chat."""
    tokens, ends = begin + written.tokens, chat.eos_ids | {document_end(chat.tokenizer)}
    end = next((i for i, token in enumerate(tokens) if token in ends), None)
    if apart.intersection(tokens[:end]):
        return ""
    text = chat.text(tokens[:end]).strip()
    if end is not None or written.finished:
        return text
    stops = [stop.end() for stop in STOP.finditer(text)]
    return text[: stops[-1]].strip() if stops else ""


def _is_a_document(text: str) -> bool:
    words = text.split()
    return len(words) >= FEWEST_WORDS and words[0] not in ROLES and not garbled(text)


def _not_of_documents(chat: Chat) -> set[int]:
    """The tokens that only chats and endings are made of."""
    tokenizer = chat.tokenizer
    return set(tokenizer.all_special_ids) | set(tokenizer.get_added_vocab().values())
