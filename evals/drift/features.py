"""States as vectors: what was written so far as seen from outside (words and signs), and as a model sees it."""

import re
import zlib
from collections.abc import Sequence

import numpy as np
import torch

from recovery.batch import Batch, Sample
from recovery.models.students import Student

BUCKETS = 96  # of words, by their hash
TOKENS_AT_ONCE = 16384
WORD = re.compile(r"\w+")


def lexical(texts: Sequence[str]) -> np.ndarray:
    """Which words, how many, and the shape of the writing [texts, features]."""
    return np.array([_lexical(text) for text in texts], dtype=np.float32)


def word_set(text: str) -> set[str]:
    return set(WORD.findall(text.casefold()))


def hidden(model: Student, prefixes: Sequence[list[int]]) -> np.ndarray:
    """The last hidden state of `model` after each prefix [prefixes, width]; whole rollouts are read once."""
    found: dict[int, np.ndarray] = {}
    for rows in _rows(prefixes):
        batch = Batch.collate([row for row, _ in rows], model.chat.pad_id, model.device)
        with torch.inference_mode():
            output = model.causal.get_decoder()(input_ids=batch.tokens, use_cache=False).last_hidden_state
        for i, (_, inside) in enumerate(rows):
            for index, length in inside:
                found[index] = output[i, length - 1].float().cpu().numpy()
    return np.stack([found[i] for i in range(len(prefixes))])


Part = tuple[Sample, list[tuple[int, int]]]  # a row to read, and which prefixes end where in it


def _rows(prefixes: Sequence[list[int]]) -> list[list[Part]]:
    """Prefixes of one another are read as one row: in a causal model its states hold all of theirs."""
    order = sorted(range(len(prefixes)), key=lambda i: prefixes[i])
    parts: list[Part] = []
    for i in reversed(order):
        prefix = prefixes[i]
        if parts and parts[-1][0].tokens[: len(prefix)] == prefix:
            parts[-1][1].append((i, len(prefix)))
        else:
            parts.append((Sample(prefix, [False] * len(prefix)), [(i, len(prefix))]))
    parts.sort(key=lambda part: len(part[0].tokens))
    batches: list[list[Part]] = [[]]
    for part in parts:
        if len(part[0].tokens) * (len(batches[-1]) + 1) > TOKENS_AT_ONCE and batches[-1]:
            batches.append([])
        batches[-1].append(part)
    return batches


def _lexical(text: str) -> list[float]:
    said = WORD.findall(text.casefold())
    buckets = np.bincount([zlib.crc32(word.encode()) % BUCKETS for word in said], minlength=BUCKETS)
    letters = max(len(text), 1)
    shape = [
        np.log1p(len(said)),
        len(set(said)) / max(len(said), 1),
        letters / max(len(said), 1),
        *(sum(map(kind, text)) / letters for kind in (str.isupper, str.isdigit, str.isspace)),
        *(np.log1p(text.count(sign)) for sign in "\n.,!?*#-\"'():"),
    ]
    return [*np.sqrt(buckets / max(len(said), 1)), *shape]
