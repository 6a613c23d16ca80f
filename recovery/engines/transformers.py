"""Rollouts with the student's own modules: runs everywhere, and always uses the current weights.

Small models are limited by overhead, not by matrix products. So equal prompts are prefilled once, prompts of similar
length are batched, keys and values are appended in place, and finished rows leave the batch. A batch takes only as many
rows as there is memory for the keys and values of everything they may generate.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.nn import Embedding
from transformers.cache_utils import DynamicCache

from recovery.chunked_loss import at_least_float32, token_logprobs
from recovery.distributed import size
from recovery.engines import COPIES, MAX_PERIOD, Generation, Sampling, loop_period
from recovery.engines.decoding import (
    FixedDecoder,
    GrowableLayer,
    GrowingDecoder,
    JoinedCache,
    bytes_per_token,
    cannot_generate,
    forward,
    grouped_attention,
    uses_grouped_attention,
)
from recovery.errors import RecoverError
from recovery.models.families import unscaled_positions
from recovery.models.students import Student, has_full_attention_only, repeated_cache
from recovery.progress import Update, track
from recovery.samples import Batch, Sample, common_start, micro_batches

ALL = slice(None)
LOOP_CHECK_STEPS = 16
MAX_CACHED_TOKENS = 4096  # keys and values of contexts and continuations at once: rows × longest row
MAX_PASS_TOKENS = 16384  # rows × longest row of one pass over existing text
# Of the log-probs of a reply and of the same text read alone, on average over the vocabulary.
MAX_GAP, MAX_GAP_IN_16_BITS = 0.05, 0.5
agreeing: WeakSet[Any] = WeakSet()  # models that are known to have no larger one


class TransformersEngine:
    def __init__(self, student: Student, *, max_rows: int = 256, fixed: bool | None = None):
        """`fixed` decodes with tensors allocated once: slower in itself, but a GPU can record it as a CUDA graph."""
        self.student, self.max_rows = student, max_rows
        self.fixed = student.device.type == "cuda" if fixed is None else fixed

    def sync(self, student: Student) -> None:
        self.student = student

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        replies = self.generate_part(prompts, sampling, self.batches(prompts, sampling.max_new_tokens))
        return [replies[i] for i in range(len(prompts))]

    @torch.inference_mode()
    def generate_part(
        self, prompts: Sequence[list[int]], sampling: Sampling, batches: Iterable[list[int]], part: slice = ALL
    ) -> dict[int, Generation]:
        """Return the replies to a part of every batch, by the prompt's index.

        Random numbers are drawn for all rows of a batch, so a reply does not depend on how they are parted."""
        generator = torch.Generator(device=self.student.device).manual_seed(sampling.seed)
        results: dict[int, Generation] = {}
        self.student.model.eval()
        self._check_agreement()
        done, update = 0, track("replies", len(prompts))
        for batch in batches:
            shape = (len(batch), sampling.max_new_tokens)
            uniforms = torch.rand(shape, generator=generator, device=self.student.device)[part]
            if indices := batch[part]:
                advance = lambda ended, before=done: update(before + ended)  # noqa: E731
                rows = self._generate_batch([prompts[i] for i in indices], sampling, uniforms, advance)
                results |= zip(indices, rows, strict=True)
            done += len(batch)
            update(done)
        return results

    @torch.inference_mode()
    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        self._check_lengths(sequences, beyond=1)  # the last token is not read
        self.student.model.eval()
        samples = [Sample(tokens, [False] + [True] * (len(tokens) - 1), group=i) for i, tokens in enumerate(sequences)]
        result: list[list[float]] = [[] for _ in sequences]
        done, update = 0, track("texts scored", len(samples))
        for rows in micro_batches([s for s in samples if s.target_count], MAX_PASS_TOKENS):
            batch = Batch.collate(rows, self.student.chat.pad_id, self.student.device)
            values = token_logprobs(self.student.hidden(batch), self.student.whole_head, batch.target_tokens)
            for s, part in zip(rows, values.split([s.target_count for s in rows]), strict=True):
                result[s.group or 0] = part.tolist()
            done += len(rows)
            update(done)
        return result

    def continuation_logprobs(
        self, contexts: Sequence[list[int]], continuations: Sequence[list[int]]
    ) -> list[list[float]]:
        self.student.model.eval()
        if not contexts or not _keeps_all_states(self.student):
            return logprobs_of_rows(self.logprobs, contexts, continuations)
        texts = [[*context, *more] for context, more in zip(contexts, continuations, strict=True)]
        self._check_lengths(texts, beyond=1)
        return logprobs_of_shared(self.student, contexts, continuations)

    @torch.inference_mode()
    def batches(self, prompts: Sequence[list[int]], max_new_tokens: int) -> list[list[int]]:
        """Return indices of prompts of similar length, as many per batch as there is memory for, and at least one.

        Prompts whose replies the last position may end are batched with others of their length alone."""
        budget, positions = _memory_budget(self.student.device), self._check_lengths(prompts)
        # The cache of one token is measured: model families differ too much to compute it from their configs.
        bytes_each = bytes_per_token(self._prefill_batch([[self.student.chat.pad_id]])[1])
        batches: list[list[int]] = []
        for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
            rows = len(batches[-1]) if batches else self.max_rows
            is_full = rows == self.max_rows or (rows + 1) * (len(prompts[i]) + max_new_tokens) * bytes_each > budget
            may_end = positions is not None and len(prompts[i]) + max_new_tokens > positions + 1
            if is_full or (may_end and len(prompts[batches[-1][0]]) < len(prompts[i])):
                batches.append([])
            batches[-1].append(i)
        return batches

    def _check_lengths(self, texts: Sequence[list[int]], beyond: int = 0) -> int | None:
        """The positions that the model reads. Raise RecoverError if one of the texts is longer."""
        positions = readable_positions(self.student.causal)
        if positions is not None and (longest := max(map(len, texts), default=0)) > positions + beyond:
            raise RecoverError(
                f"A text of {longest:,} tokens is longer than the {positions:,} that {self.student.path} can read. "
                "Leave it out, or choose a model with a longer context."
            )
        return positions

    def _check_agreement(self) -> None:
        """Raise RecoverError if a family's cache minds padding, or that rows leave the batch."""
        causal, device = self.student.causal, self.student.device
        if causal in agreeing:
            return
        rows = [[3, 4], [5], [5, 6, 7, 8]]  # any tokens
        try:
            with grouped_attention(causal):
                decoder = GrowingDecoder(self.student.model, self._prefill(rows)[1], _mask(rows, device))
                decoder.step(torch.tensor([5, 6, 9], device=device))
                decoder = decoder.select_rows(torch.tensor([2, 1], device=device))
                replies = decoder.step(torch.tensor([10, 7], device=device))
            alone = torch.cat([self._prefill_batch([text])[0] for text in ([5, 6, 7, 8, 9, 10], [5, 6, 7])])
        except (torch.OutOfMemoryError, RecoverError):
            raise
        except Exception as error:  # of any kind: families have caches of their own
            raise cannot_generate(causal) from error
        gap = (torch.log_softmax(replies.float(), -1) - torch.log_softmax(alone.float(), -1)).abs().mean()
        if gap > (MAX_GAP if alone.element_size() > 2 else MAX_GAP_IN_16_BITS):
            raise cannot_generate(causal)
        agreeing.add(causal)

    def _generate_batch(
        self, prompts: list[list[int]], sampling: Sampling, uniforms: Tensor, update: Update
    ) -> list[Generation]:
        if positions := readable_positions(self.student.causal):  # the last token is not read again
            room = positions + 1 - max(map(len, prompts))
            sampling = replace(sampling, max_new_tokens=min(sampling.max_new_tokens, room))
        device, shape = self.student.device, (len(prompts), sampling.max_new_tokens)
        ends = torch.tensor(self.student.chat.reply_ends(sampling.of_turns), device=device)
        sampled = torch.zeros(shape, dtype=torch.long, device=device)
        logprobs = torch.zeros(shape, device=device)
        counts = torch.full(shape[:1], sampling.max_new_tokens, device=device)
        finished = torch.zeros(shape[:1], dtype=torch.bool, device=device)
        running = torch.ones(shape[:1], dtype=torch.bool, device=device)
        rows = torch.arange(len(prompts), device=device)  # the prompt of each row of the shrinking batch
        with grouped_attention(self.student.causal):
            logits, cache = self._prefill(prompts)
            decoder = self._decoder(prompts, cache, sampling.max_new_tokens)
            for step in range(sampling.max_new_tokens):
                chosen, values = _choose(logits, sampling.temperature, uniforms[rows, step])
                sampled[rows, step], logprobs[rows, step] = chosen, values
                stopping = torch.isin(chosen, ends) & running[rows]
                finished[rows] |= stopping
                if sampling.end_loops and (step + 1) % LOOP_CHECK_STEPS == 0:
                    stopping |= _looping(sampled[rows, : step + 1]) & running[rows]
                counts[rows], running[rows] = torch.where(stopping, step + 1, counts[rows]), running[rows] & ~stopping
                if step + 1 == sampling.max_new_tokens:
                    break
                if step % decoder.check_every == 0:
                    left = int(running[rows].sum())
                    if left == 0:
                        break
                    update(len(prompts) - left)
                    if left < decoder.shrink_below * len(rows):
                        order = _running_order(running[rows])
                        rows, chosen, decoder = rows[order], chosen[order], decoder.select_rows(order)
                logits = decoder.step(chosen)
        return [
            Generation(tokens[:count], values[:count], is_finished)
            for tokens, values, count, is_finished in zip(
                sampled.tolist(), logprobs.tolist(), counts.tolist(), finished.tolist(), strict=True
            )
        ]

    def _decoder(self, prompts: list[list[int]], cache: Any, new_tokens: int) -> GrowingDecoder | FixedDecoder:
        mask = _mask(prompts, self.student.device)
        fixed = self.fixed and isinstance(cache.layers[0], GrowableLayer) and _can_be_recorded(self.student.causal)
        if fixed and FixedDecoder.required_bytes(cache, mask, new_tokens) <= _memory_budget(self.student.device):
            return FixedDecoder.from_prefill(self.student.model, cache, mask, new_tokens)
        return GrowingDecoder(self.student.model, cache, mask)

    def _prefill(self, prompts: list[list[int]]) -> tuple[Tensor, Any]:
        """Return the logits after each prompt, and a cache in which all prompts end in the same column.

        A model with sliding windows or recurrent states reads all prompts in one batch and keeps its own cache."""
        if not has_full_attention_only(DynamicCache(config=self.student.causal.config)):
            return self._prefill_batch(prompts)
        rows_by_prompt: dict[tuple[int, ...], list[int]] = {}
        for row, prompt in enumerate(prompts):
            rows_by_prompt.setdefault(tuple(prompt), []).append(row)
        joined, logits = JoinedCache(len(prompts), max(map(len, prompts))), None
        # The prompts are this process's already, while micro_batches cuts for all processes.
        limit = MAX_PASS_TOKENS // size()
        for part in micro_batches([Sample(list(p), [False] * len(p)) for p in rows_by_prompt], limit):
            part_logits, cache = self._prefill_batch([s.tokens for s in part])
            copies = [rows_by_prompt[tuple(s.tokens)] for s in part]
            rows = torch.tensor([row for copied in copies for row in copied], device=part_logits.device)
            source = torch.tensor([i for i, copied in enumerate(copies) for _ in copied], device=part_logits.device)
            logits = part_logits.new_empty(len(prompts), part_logits.shape[-1]) if logits is None else logits
            logits[rows] = part_logits[source]
            joined.put(cache, source, rows)
        assert logits is not None
        return logits, joined.cache

    def _prefill_batch(self, prompts: list[list[int]]) -> tuple[Tensor, Any]:
        pad, device, mask = self.student.chat.pad_id, self.student.device, _mask(prompts, self.student.device)
        tokens = torch.tensor([[pad] * (mask.shape[1] - len(p)) + p for p in prompts], device=device)
        return forward(self.student.model, tokens, mask, (mask.cumsum(-1) - 1).clamp(min=0), None)


def readable_positions(causal: Any) -> int | None:
    """How many positions a model reads at most, if it learned an embedding of each, as GPT-2 did, or would rescale
    them behind."""
    config = causal.config.get_text_config()
    names = {name.rpartition(".")[-1] for name, module in causal.named_modules() if isinstance(module, Embedding)}
    has_learned = not names.isdisjoint(("wpe", "embed_positions", "position_embeddings"))
    return int(config.max_position_embeddings) if has_learned else unscaled_positions(config)


@torch.inference_mode()
def _keeps_all_states(student: Student) -> bool:
    """Whether the layers keep keys and values of every token, in the cache that they are given: RWKV's keep none."""
    cache = DynamicCache()
    if has_full_attention_only(DynamicCache(config=student.causal.config)):
        _read(student, [[0]], cache)
    return cache.get_seq_length() == 1


def _mask(prompts: list[list[int]], device: torch.device) -> Tensor:
    width = max(len(p) for p in prompts)
    return torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)


def _can_be_recorded(causal: Any) -> bool:
    """Return whether the model's control flow is independent of its values, and it accepts a boolean mask.

    Mixtures of experts and positions that may be rescaled branch on values; attention that adds its mask, or that
    builds one from token positions (ALiBi), takes no boolean mask."""
    config = causal.config.get_text_config()
    experts = any(getattr(config, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts"))
    rescaled = unscaled_positions(config) is not None
    return uses_grouped_attention(causal) and not (experts or rescaled or getattr(config, "alibi", False))


def _memory_budget(device: torch.device) -> float:
    """Return the bytes that one batch of replies may take: a quarter of a GPU's memory or half of the machine's.

    It ignores what is free now: otherwise a resumed run might batch, and so sample, differently."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory / 4
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2


def _choose(logits: Tensor, temperature: float, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next token of each row and its log-prob at temperature 1.

    One uniform number per row is looked up in the cumulative distribution: `torch.multinomial` draws one per token of
    the vocabulary, which takes longer than a small model's forward pass. The sum is in float64, since float32 would
    lose the small probabilities of a large vocabulary."""
    log_p = torch.log_softmax(at_least_float32(logits), dim=-1)
    if temperature == 0:
        chosen = log_p.argmax(-1)
    else:
        weights = log_p.exp() if temperature == 1 else torch.softmax(log_p / temperature, dim=-1)
        cumulative = weights.cumsum(-1, dtype=torch.float64)
        threshold = uniforms[:, None] * cumulative[:, -1:]
        chosen = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    return chosen, log_p.gather(-1, chosen[:, None]).squeeze(-1)


def _running_order(running: Tensor) -> Tensor:
    """Return the running rows, in an order that moves few of them: the last ones fill the gaps."""
    left = int(running.sum())
    order = torch.arange(left, device=running.device)
    order[~running[:left]] = left + running[left:].nonzero().squeeze(-1)
    return order


def _looping(tokens: Tensor) -> Tensor:
    tail = tokens[:, -MAX_PERIOD * COPIES :].tolist()
    return torch.tensor([loop_period(row) is not None for row in tail], device=tokens.device)


def logprobs_of_rows(
    logprobs: Callable[[Sequence[list[int]]], list[list[float]]],
    contexts: Sequence[list[int]],
    continuations: Sequence[list[int]],
) -> list[list[float]]:
    """Score every context with its continuation as a text of its own."""
    rows = [[*context, *continuation] for context, continuation in zip(contexts, continuations, strict=True)]
    return [scores[len(scores) - len(c) :] for scores, c in zip(logprobs(rows), continuations, strict=True)]


@torch.inference_mode()
def logprobs_of_shared(
    student: Student, contexts: Sequence[list[int]], continuations: Sequence[list[int]]
) -> list[list[float]]:
    """Read the start that all contexts share once, then each context once, then the continuations, such as the choices
    of a question.

    Only for models whose layers all keep the keys and values of every token. Rows read together have contexts of one
    length, and continuations are padded at their end, so that the model needs no attention mask."""
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for i, context in enumerate(contexts):
        rows_of.setdefault(tuple(context), []).append(i)
    shared = common_start([context[:-1] for context in rows_of])  # every context keeps a token of its own
    result: list[list[float]] = [[] for _ in contexts]
    start = DynamicCache()
    if shared:
        _read(student, [contexts[0][:shared]], start)
    report, done = track("contexts scored", len(rows_of)), 0
    for batch in _context_batches(rows_of, [len(continuation) for continuation in continuations]):
        cache = repeated_cache(start, len(batch))
        last = _read(student, [list(context[shared:]) for context in batch], cache)[:, -1:]
        source = [k for k, context in enumerate(batch) for _ in rows_of[context]]
        rows = [i for context in batch for i in rows_of[context]]
        for i, scores in zip(rows, _score(student, last, cache, source, [continuations[i] for i in rows]), strict=True):
            result[i] = scores
        done += len(batch)
        report(done)
    return result


def _context_batches(rows_of: dict[tuple[int, ...], list[int]], lengths: list[int]) -> Iterator[list[tuple[int, ...]]]:
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


def _read(student: Student, rows: list[list[int]], cache: DynamicCache) -> Tensor:
    """Append rows of one length to the cache and return their states before the output head."""
    tokens = torch.tensor(rows, device=student.device)
    return student.causal.get_decoder()(input_ids=tokens, past_key_values=cache, use_cache=True).last_hidden_state


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
    scores = token_logprobs(used, student.whole_head, targets)
    yield from (part.tolist() for part in scores.split([len(c) for c in continuations]))
