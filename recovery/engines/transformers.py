"""Rollouts from the student's own modules: runs everywhere, always in step with the weights.

Small models spend their time between the matrix products, so: equal prompts are read once and prompts of like length
together; keys and values are written into room kept for them instead of being copied at every token; a row that has
ended leaves the batch, so that the work left is the work done.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from recovery.batch import Batch, Sequence, micro_batches
from recovery.engines import Generation, Sampling
from recovery.students import Student
from recovery.vocabulary import at_least_float32, token_logprobs

TOKENS_AT_ONCE = 16384  # rows × longest row of one pass over text that is already there


class TransformersEngine:
    def __init__(self, student: Student, *, rows_at_once: int = 256):
        self.student, self.rows_at_once = student, rows_at_once

    def sync(self, student: Student) -> None:
        self.student = student

    @torch.inference_mode()
    def generate(self, prompts: Seq[list[int]], sampling: Sampling) -> list[Generation]:
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        random = torch.Generator(device=self.student.device).manual_seed(sampling.seed)
        done: list[Generation | None] = [None] * len(prompts)
        self.student.model.eval()
        for start in range(0, len(order), self.rows_at_once):
            indices = order[start : start + self.rows_at_once]
            generations = self._continue([prompts[i] for i in indices], sampling, random)
            for i, generation in zip(indices, generations, strict=True):
                done[i] = generation
        return [generation for generation in done if generation is not None]

    @torch.inference_mode()
    def logprobs(self, sequences: Seq[list[int]]) -> list[list[float]]:
        self.student.model.eval()
        keyed = [Sequence(tokens, [False] + [True] * (len(tokens) - 1), group=i) for i, tokens in enumerate(sequences)]
        result: list[list[float]] = [[] for _ in sequences]
        for rows in micro_batches([s for s in keyed if s.target_count], TOKENS_AT_ONCE):
            batch = Batch.of(rows, self.student.chat.pad_id, self.student.device)
            values = token_logprobs(self.student.hidden(batch), self.student.head, batch.target_tokens)
            for s, part in zip(rows, values.split([s.target_count for s in rows]), strict=True):
                result[s.group or 0] = part.tolist()
        return result

    def _continue(self, prompts: list[list[int]], sampling: Sampling, random: torch.Generator) -> list[Generation]:
        device, shape = self.student.device, (len(prompts), sampling.max_new_tokens)
        ends = torch.tensor(sorted(self.student.chat.eos_ids), device=device)
        written = torch.zeros(shape, dtype=torch.long, device=device)
        logprobs = torch.zeros(shape, device=device)
        counts = torch.full(shape[:1], sampling.max_new_tokens, device=device)
        finished = torch.zeros(shape[:1], dtype=torch.bool, device=device)
        luck = torch.rand(shape, generator=random, device=device)
        rows = torch.arange(len(prompts), device=device)  # which prompt each row of the shrinking batch belongs to
        mask = _mask(prompts, device, room=sampling.max_new_tokens)
        width = mask.shape[1] - sampling.max_new_tokens
        positions = mask[:, :width].sum(-1, keepdim=True)
        with _shared_heads(self.student.causal):
            logits, cache = self._read(prompts)
            for step in range(sampling.max_new_tokens):
                chosen, values = _choose(logits, sampling.temperature, luck[rows, step])
                written[rows, step], logprobs[rows, step] = chosen, values
                over = torch.isin(chosen, ends)
                if over.any():
                    counts[rows[over]], finished[rows[over]] = step + 1, True
                    keep = _without(over)
                    rows, chosen, mask, positions = rows[keep], chosen[keep], mask[keep], positions[keep]
                    cache.reorder_cache(keep)
                if len(rows) == 0 or step + 1 == sampling.max_new_tokens:
                    break
                logits, cache = self._forward(chosen[:, None], mask[:, : width + step + 1], positions + step, cache)
        return [
            Generation(tokens[:count], values[:count], ended)
            for tokens, values, count, ended in zip(
                written.tolist(), logprobs.tolist(), counts.tolist(), finished.tolist(), strict=True
            )
        ]

    def _forward(self, tokens: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> tuple[Tensor, Any]:
        output = self.student.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1], output.past_key_values

    def _read(self, prompts: list[list[int]]) -> tuple[Tensor, Any]:
        """Logits of what follows each prompt, and the cache after them, in which all prompts end in one column.

        A model that remembers more than keys and values of every token (sliding windows, recurrent states) reads them
        in one batch and keeps the cache that it made."""
        if not _remembers_every_token(DynamicCache(config=self.student.causal.config)):
            return self._read_together(prompts)
        rows_of: dict[tuple[int, ...], list[int]] = {}
        for row, prompt in enumerate(prompts):
            rows_of.setdefault(tuple(prompt), []).append(row)
        joined, logits = _JoinedCache(len(prompts), max(map(len, prompts))), None
        for part in micro_batches([Sequence(list(p), [False] * len(p)) for p in rows_of], TOKENS_AT_ONCE):
            some, cache = self._read_together([s.tokens for s in part])
            copies = [rows_of[tuple(s.tokens)] for s in part]
            rows = torch.tensor([row for each in copies for row in each], device=some.device)
            source = torch.tensor([i for i, each in enumerate(copies) for _ in each], device=some.device)
            logits = some.new_empty(len(prompts), some.shape[-1]) if logits is None else logits
            logits[rows] = some[source]
            joined.put(cache, source, rows)
        assert logits is not None
        return logits, joined.cache

    def _read_together(self, prompts: list[list[int]]) -> tuple[Tensor, Any]:
        pad, device, mask = self.student.chat.pad_id, self.student.device, _mask(prompts, self.student.device)
        tokens = torch.tensor([[pad] * (mask.shape[1] - len(p)) + p for p in prompts], device=device)
        return self._forward(tokens, mask, (mask.cumsum(-1) - 1).clamp(min=0), None)


def _mask(prompts: list[list[int]], device: torch.device, room: int = 0) -> Tensor:
    """Which columns each row may look at: its prompt, at the right, and `room` for what it will write."""
    width = max(len(p) for p in prompts)
    return torch.tensor([[0] * (width - len(p)) + [1] * (len(p) + room) for p in prompts], device=device)


def _choose(logits: Tensor, temperature: float, luck: Tensor) -> tuple[Tensor, Tensor]:
    """The next token of each row, and its log-prob under the plain distribution (T = 1, nothing cut off).

    One random number a row, looked up in the cumulative distribution: drawing one for each token of the vocabulary, as
    `torch.multinomial` does, takes longer than a small model's forward pass. Summed in float64, for float32 would lose
    the small probabilities of a large vocabulary."""
    log_p = torch.log_softmax(at_least_float32(logits), dim=-1)
    if temperature == 0:
        chosen = log_p.argmax(-1)
    else:
        weights = log_p.exp() if temperature == 1 else torch.softmax(log_p / temperature, dim=-1)
        reached = weights.cumsum(-1, dtype=torch.float64)
        mark = luck[:, None] * reached[:, -1:]
        chosen = torch.searchsorted(reached, mark, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    return chosen, log_p.gather(-1, chosen[:, None]).squeeze(-1)


def _without(over: Tensor) -> Tensor:
    """The rows that go on, as an order in which few of them move: the last ones take the places of those that ended."""
    left = int((~over).sum())
    order = torch.arange(left, device=over.device)
    order[over[:left]] = left + (~over[left:]).nonzero().squeeze(-1)
    return order


def _remembers_every_token(cache: DynamicCache) -> bool:
    return all(type(layer) is DynamicLayer for layer in cache.layers)


class _JoinedCache:
    """One cache from several, shifted so that all their rows end in the same column."""

    def __init__(self, rows: int, width: int):
        self.rows, self.width, self.cache = rows, width, DynamicCache()

    def put(self, cache: DynamicCache, source: Tensor, rows: Tensor) -> None:
        for i, layer in enumerate(cache.layers):
            if i == len(self.cache.layers):
                self.cache.layers.append(_Layer(*(_Room(self.rows, self.width, t) for t in (layer.keys, layer.values))))
            start = self.width - layer.keys.shape[2]
            for room, states in zip(self.cache.layers[i].rooms, (layer.keys, layer.values), strict=True):
                room.states[rows, :, start : self.width] = states[source]


class _Room:
    """Keys or values [rows, heads, columns, width] with columns to spare: adding one copies none of the others."""

    def __init__(self, rows: int, columns: int, like: Tensor):
        self.rows, self.columns = rows, columns
        _, heads, _, width = like.shape
        self.states = like.new_zeros(rows, heads, columns + _spare(columns), width)

    @property
    def filled(self) -> Tensor:
        return self.states[: self.rows, :, : self.columns]

    def add(self, new: Tensor) -> Tensor:
        end = self.columns + new.shape[2]
        if end > self.states.shape[2]:
            more = new.new_zeros(*new.shape[:2], _spare(end), new.shape[3])
            self.states = torch.cat([self.filled, more], dim=2)
        self.states[: self.rows, :, self.columns : end] = new
        self.columns = end
        return self.filled

    def keep(self, order: Tensor) -> None:
        moved = (order != torch.arange(len(order), device=order.device)).nonzero().squeeze(-1)
        self.states[moved, :, : self.columns] = self.states[order[moved], :, : self.columns]
        self.rows = len(order)


def _spare(columns: int) -> int:
    return 32 + columns // 4


class _Layer(DynamicLayer):
    """A layer of transformers' cache whose keys and values have room to grow, and whose rows leave in place."""

    def __init__(self, keys: _Room, values: _Room):
        super().__init__()
        self.rooms = keys, values
        self.is_initialized = True
        self._show()

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        for room, new in zip(self.rooms, (key_states, value_states), strict=True):
            room.add(new)
        return self._show()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        for room in self.rooms:
            room.keep(beam_idx)
        self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        self.keys, self.values = (room.filled for room in self.rooms)
        return self.keys, self.values


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention of one new token in float32; anything else as transformers does it.

    With a mask, transformers first copies keys and values once for every query head that shares them. Here the heads
    that share them are the rows of one small matrix product."""
    rows, heads, count, width = query.shape
    if count > 1 or query.dtype != torch.float32 or options.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    shared = key.shape[1]
    scale = options.get("scaling") or width**-0.5
    scores = (query.reshape(rows, shared, heads // shared, width) * scale) @ key.transpose(-1, -2)
    if attention_mask is not None:
        allowed = attention_mask if attention_mask.dtype == torch.bool else attention_mask >= 0
        scores = scores.masked_fill(~allowed, -torch.inf)
    mixed = torch.softmax(scores, dim=-1) @ value
    return mixed.reshape(rows, 1, heads, value.shape[-1]), None


AttentionInterface.register("recover", _attend)
AttentionMaskInterface.register("recover", sdpa_mask)


@contextmanager
def _shared_heads(causal: Any) -> Iterator[None]:
    """Within it, a model that would take transformers' ordinary attention takes `_attend`."""
    config = causal.config.get_text_config()
    before = config._attn_implementation
    if before == "sdpa" and causal._supports_attention_backend:
        config._attn_implementation = "recover"
    try:
        yield
    finally:
        config._attn_implementation = before
