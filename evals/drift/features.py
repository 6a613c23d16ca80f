"""Feature vectors of states: word and character statistics of a text, and a model's hidden state."""

import re
import zlib
from collections.abc import Sequence

import numpy as np
import torch

from recovery.models.students import Student
from recovery.samples import Batch, Sample

BUCKETS = 96  # hash buckets for words
TOKENS_PER_BATCH = 16384
WORD = re.compile(r"\w+")

Row = tuple[Sample, list[tuple[int, int]]]  # a sequence, and (index, length) of the prefixes that it contains


def lexical_features(texts: Sequence[str]) -> np.ndarray:
    """Return word counts by hash bucket and text statistics [texts, features]."""
    return np.array([_lexical(text) for text in texts], dtype=np.float32)


def word_set(text: str) -> set[str]:
    return set(WORD.findall(text.casefold()))


def hidden_features(model: Student, prefixes: Sequence[list[int]]) -> np.ndarray:
    """Return the last hidden state of `model` after each prefix [prefixes, width]."""
    states: dict[int, np.ndarray] = {}
    for rows in _batches(prefixes):
        batch = Batch.collate([row for row, _ in rows], model.chat.pad_id, model.device)
        with torch.inference_mode():
            output = model.causal.get_decoder()(input_ids=batch.tokens, use_cache=False).last_hidden_state
        for i, (_, ends) in enumerate(rows):
            for index, length in ends:
                states[index] = output[i, length - 1].float().cpu().numpy()
    return np.stack([states[i] for i in range(len(prefixes))])


def _batches(prefixes: Sequence[list[int]]) -> list[list[Row]]:
    """Merge prefixes of one another into one row each: a causal model's states of the row include theirs."""
    order = sorted(range(len(prefixes)), key=lambda i: prefixes[i])
    rows: list[Row] = []
    for i in reversed(order):
        prefix = prefixes[i]
        if rows and rows[-1][0].tokens[: len(prefix)] == prefix:
            rows[-1][1].append((i, len(prefix)))
        else:
            rows.append((Sample(prefix, [False] * len(prefix)), [(i, len(prefix))]))
    rows.sort(key=lambda row: len(row[0].tokens))
    batches: list[list[Row]] = [[]]
    for row in rows:
        if len(row[0].tokens) * (len(batches[-1]) + 1) > TOKENS_PER_BATCH and batches[-1]:
            batches.append([])
        batches[-1].append(row)
    return batches


def _lexical(text: str) -> list[float]:
    words = WORD.findall(text.casefold())
    buckets = np.bincount([zlib.crc32(word.encode()) % BUCKETS for word in words], minlength=BUCKETS)
    letters = max(len(text), 1)
    shape = [
        np.log1p(len(words)),
        len(set(words)) / max(len(words), 1),
        letters / max(len(words), 1),
        *(sum(map(kind, text)) / letters for kind in (str.isupper, str.isdigit, str.isspace)),
        *(np.log1p(text.count(sign)) for sign in "\n.,!?*#-\"'():"),
    ]
    return [*np.sqrt(buckets / max(len(words), 1)), *shape]
