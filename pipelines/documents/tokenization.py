"""Tokenize a corpus into one flat file of token ids, cached by content. Mid-training reads its windows from it."""

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.documents.corpus import Texts
from pipelines.storage import HASH_DIGITS, ContentCache, open_atomic

BATCH = 64  # texts in one call of the tokenizer
COUNTED, COUNTED_CHARACTERS = 2_000, 10_000_000  # of a corpus whose tokens are estimated


class TokenFile(Sequence[Sequence[int]]):
    """Each item is one document's token ids, as a view of the memory-mapped file."""

    def __init__(self, file: Path):
        self.ends = np.fromfile(_ends(file), np.uint64)
        ids = np.memmap(file, np.uint32, mode="r") if file.stat().st_size else np.empty(0, np.uint32)
        self.ids = ids.data

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        return self.ids[self.ends[number - 1] if number else 0 : self.ends[number]]

    @property
    def tokens(self) -> int:
        return len(self.ids)


def tokenize_documents(texts: Iterable[str], tokenizer: Any, folder: Path, content: str) -> TokenFile:
    """Tokenize the texts, or open the file of an earlier call. `content` is the hash of the texts."""
    kind, inputs = f"tokens-{content[:HASH_DIGITS]}", f"{content}/{_definition(tokenizer)}"
    file = ContentCache(folder).path(kind, inputs, ".u32")
    if not (file.is_file() and _ends(file).is_file()):
        ends = array("Q")
        with open_atomic(file) as raw:
            for ids in _tokenize(texts, tokenizer):
                raw.write(array("I", ids).tobytes())
                ends.append((ends[-1] if ends else 0) + len(ids))
            with open_atomic(_ends(file)) as out:  # the token file must not appear before its ends
                out.write(ends.tobytes())
    return TokenFile(file)


def count_tokens(texts: Iterable[str], tokenizer: Any) -> int:
    return sum(len(ids) for ids in _tokenize(texts, tokenizer))


def estimated_tokens(texts: Texts, tokenizer: Any) -> int:
    """Of a large corpus by some of its texts, so that it takes seconds."""
    count = min(len(texts), COUNTED, max(1, COUNTED_CHARACTERS * len(texts) // texts.characters))
    sample = [texts[i * len(texts) // count] for i in range(count)]
    return round(count_tokens(sample, tokenizer) * texts.characters / sum(map(len, sample)))


def _tokenize(texts: Iterable[str], tokenizer: Any) -> Iterator[list[int]]:
    remaining = iter(texts)
    while batch := list(islice(remaining, BATCH)):
        # The name of a special token inside a document is plain text.
        yield from tokenizer(batch, add_special_tokens=False, split_special_tokens=True)["input_ids"]


def _definition(tokenizer: Any) -> str:
    """Everything that decides how this tokenizer splits a text."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    return fast.to_str() if fast is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)


def _ends(file: Path) -> Path:
    return file.with_suffix(".ends")
