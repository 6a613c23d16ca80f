"""Log-probs of continuations of the same contexts, such as the choices of a question: what they share is read once."""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from recovery.chunked_loss import token_logprobs
from recovery.models.students import Student
from recovery.progress import track

MAX_CACHED_TOKENS = 4096  # keys and values at once: rows × longest row

Logprobs = Callable[[Sequence[list[int]]], list[list[float]]]


def logprobs_of_rows(
    logprobs: Logprobs, contexts: Sequence[list[int]], continuations: Sequence[list[int]]
) -> list[list[float]]:
    """Score every context with its continuation as a text of its own."""
    rows = [[*context, *continuation] for context, continuation in zip(contexts, continuations, strict=True)]
    return [scores[len(scores) - len(c) :] for scores, c in zip(logprobs(rows), continuations, strict=True)]


@torch.inference_mode()
def logprobs_of_shared(
    student: Student, contexts: Sequence[list[int]], continuations: Sequence[list[int]]
) -> list[list[float]]:
    """Read the start that all contexts share once, then each context once, then the continuations.

    Only for models whose layers all keep the keys and values of every token. Rows read together have contexts of one
    length, and continuations are padded at their end, so that the model needs no attention mask."""
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for i, context in enumerate(contexts):
        rows_of.setdefault(tuple(context), []).append(i)
    columns = zip(*(context[:-1] for context in rows_of), strict=False)  # every context keeps a token of its own
    shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    result: list[list[float]] = [[] for _ in contexts]
    start = _read_start(student, contexts[0][:shared]) if shared else None
    report, done = track("contexts scored", len(rows_of)), 0
    for batch in _batches(rows_of, [len(continuation) for continuation in continuations]):
        cache = DynamicCache()
        for i, layer in enumerate(start.layers if start else ()):
            cache.update(layer.keys.expand(len(batch), -1, -1, -1), layer.values.expand(len(batch), -1, -1, -1), i)
        last = _read(student, [list(context[shared:]) for context in batch], cache)[:, -1:]
        source = [k for k, context in enumerate(batch) for _ in rows_of[context]]
        rows = [i for context in batch for i in rows_of[context]]
        for i, scores in zip(rows, _score(student, last, cache, source, [continuations[i] for i in rows]), strict=True):
            result[i] = scores
        done += len(batch)
        report(done)
    return result


def _batches(rows_of: dict[tuple[int, ...], list[int]], lengths: list[int]) -> Iterator[list[tuple[int, ...]]]:
    """Yield contexts of one length, at least one, whose rows fit into MAX_CACHED_TOKENS."""
    batch: list[tuple[int, ...]] = []
    count = longest = 0
    for context in sorted(rows_of, key=len):
        rows = rows_of[context]
        count, longest = count + len(rows), max(longest, *(lengths[i] for i in rows))
        if batch and (len(context) != len(batch[0]) or count * (len(context) + longest) > MAX_CACHED_TOKENS):
            yield batch
            batch, count, longest = [], len(rows), max(lengths[i] for i in rows)
        batch.append(context)
    if batch:
        yield batch


def _read_start(student: Student, tokens: list[int]) -> DynamicCache:
    cache = DynamicCache()
    _read(student, [tokens], cache)
    return cache


def _read(student: Student, rows: list[list[int]], cache: DynamicCache) -> Tensor:
    """Append rows of one length to the cache and return their states before the output head."""
    tokens = torch.tensor(rows, device=student.device)
    states: Tensor = student.causal.get_decoder()(
        input_ids=tokens, past_key_values=cache, use_cache=True
    ).last_hidden_state
    return states


def _score(
    student: Student, last: Tensor, cache: DynamicCache, source: list[int], continuations: list[list[int]]
) -> Iterator[list[float]]:
    """Score the continuations of the contexts in the cache; `source` is the context of each."""
    order = torch.tensor(source, device=student.device)
    longest, states = max(map(len, continuations)), last[order]
    if longest > 1:
        cache.reorder_cache(order)
        pad = student.chat.pad_id
        padded = [[*c[:-1], *[pad] * (longest - max(len(c), 1))] for c in continuations]
        states = torch.cat([states, _read(student, padded, cache)], dim=1)
    targets = torch.tensor([token for c in continuations for token in c], device=student.device)
    used = torch.cat([states[i, : len(c)] for i, c in enumerate(continuations)])
    scores = token_logprobs(used, student.head, targets).tolist()
    for c in continuations:
        yield scores[: len(c)]
        scores = scores[len(c) :]
