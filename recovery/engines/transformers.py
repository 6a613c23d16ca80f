"""Rollouts from the student's own modules: runs everywhere, always in step with the weights.

Small models spend their time between the matrix products, so: equal prompts are read once and prompts of like length
together; keys and values are written into room kept for them instead of being copied at every token; a row that has
ended leaves the batch, so that the work left is the work done. Keys and values are what fills the memory: a batch takes
no more rows than find room for all that they may write.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from recovery.batch import Batch, Sample, micro_batches
from recovery.engines import Generation, Sampling
from recovery.engines.attention import has_shared_heads, shared_heads
from recovery.engines.decoding import Fixed, Growing, forward
from recovery.engines.kv_cache import JoinedCache, RoomyLayer, bytes_a_token, remembers_every_token
from recovery.losses.chunked_loss import at_least_float32, token_logprobs
from recovery.models.students import Student

TOKENS_AT_ONCE = 16384  # rows × longest row of one pass over text that is already there


class TransformersEngine:
    def __init__(self, student: Student, *, rows_at_once: int = 256, fixed: bool | None = None):
        """`fixed`: write into tensors that stay where they are. Slower, but on a GPU such steps can be recorded."""
        self.student, self.rows_at_once = student, rows_at_once
        self.fixed = student.device.type == "cuda" if fixed is None else fixed

    def sync(self, student: Student) -> None:
        self.student = student

    @torch.inference_mode()
    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        random = torch.Generator(device=self.student.device).manual_seed(sampling.seed)
        done: list[Generation | None] = [None] * len(prompts)
        self.student.model.eval()
        for indices in self._batches(prompts, sampling.max_new_tokens):
            generations = self._continue([prompts[i] for i in indices], sampling, random)
            for i, generation in zip(indices, generations, strict=True):
                done[i] = generation
        return [generation for generation in done if generation is not None]

    @torch.inference_mode()
    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        self.student.model.eval()
        keyed = [Sample(tokens, [False] + [True] * (len(tokens) - 1), group=i) for i, tokens in enumerate(sequences)]
        result: list[list[float]] = [[] for _ in sequences]
        for rows in micro_batches([s for s in keyed if s.target_count], TOKENS_AT_ONCE):
            batch = Batch.of(rows, self.student.chat.pad_id, self.student.device)
            values = token_logprobs(self.student.hidden(batch), self.student.head, batch.target_tokens)
            for s, part in zip(rows, values.split([s.target_count for s in rows]), strict=True):
                result[s.group or 0] = part.tolist()
        return result

    def _batches(self, prompts: Sequence[list[int]], max_new_tokens: int) -> Iterator[list[int]]:
        """Places of prompts of like length: as many together as find room for the keys and values of all they may
        write, and one in any case."""
        room, each = _room(self.student.device), self._bytes_a_token()
        batch: list[int] = []
        for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
            tokens = (len(batch) + 1) * (len(prompts[i]) + max_new_tokens)
            if batch and (len(batch) == self.rows_at_once or tokens * each > room):
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def _bytes_a_token(self) -> int:
        """Seen from one token: what families keep of it differs too much to be told from their configs."""
        return bytes_a_token(self._read_together([[self.student.chat.pad_id]])[1])

    def _continue(self, prompts: list[list[int]], sampling: Sampling, random: torch.Generator) -> list[Generation]:
        device, shape = self.student.device, (len(prompts), sampling.max_new_tokens)
        ends = torch.tensor(sorted(self.student.chat.eos_ids), device=device)
        written = torch.zeros(shape, dtype=torch.long, device=device)
        logprobs = torch.zeros(shape, device=device)
        counts = torch.full(shape[:1], sampling.max_new_tokens, device=device)
        finished = torch.zeros(shape[:1], dtype=torch.bool, device=device)
        luck = torch.rand(shape, generator=random, device=device)
        rows = torch.arange(len(prompts), device=device)  # which prompt each row of the shrinking batch belongs to
        with shared_heads(self.student.causal):
            logits, cache = self._read(prompts)
            tokens = self._tokens_after(prompts, cache, sampling.max_new_tokens)
            for step in range(sampling.max_new_tokens):
                chosen, values = _choose(logits, sampling.temperature, luck[rows, step])
                written[rows, step], logprobs[rows, step] = chosen, values
                over = torch.isin(chosen, ends) & ~finished[rows]
                counts[rows], finished[rows] = torch.where(over, step + 1, counts[rows]), over | finished[rows]
                if step + 1 == sampling.max_new_tokens:
                    break
                if step % tokens.look_every == 0:
                    left = int((~finished[rows]).sum())
                    if left == 0:
                        break
                    if left < tokens.shrink_below * len(rows):
                        keep = _without(finished[rows])
                        rows, chosen, tokens = rows[keep], chosen[keep], tokens.keep(keep)
                logits = tokens.add(chosen)
        return [
            Generation(tokens[:count], values[:count], ended)
            for tokens, values, count, ended in zip(
                written.tolist(), logprobs.tolist(), counts.tolist(), finished.tolist(), strict=True
            )
        ]

    def _tokens_after(self, prompts: list[list[int]], cache: Any, room: int) -> Growing | Fixed:
        mask = _mask(prompts, self.student.device)
        stays = self.fixed and isinstance(cache.layers[0], RoomyLayer) and _can_be_recorded(self.student.causal)
        if stays and Fixed.bytes_after(cache, mask, room) <= _room(self.student.device):
            return Fixed.after(self.student.model, cache, mask, room)
        return Growing(self.student.model, cache, mask)

    def _read(self, prompts: list[list[int]]) -> tuple[Tensor, Any]:
        """Logits of what follows each prompt, and the cache after them, in which all prompts end in one column.

        A model that remembers more than keys and values of every token (sliding windows, recurrent states) reads them
        in one batch and keeps the cache that it made."""
        if not remembers_every_token(DynamicCache(config=self.student.causal.config)):
            return self._read_together(prompts)
        rows_of: dict[tuple[int, ...], list[int]] = {}
        for row, prompt in enumerate(prompts):
            rows_of.setdefault(tuple(prompt), []).append(row)
        joined, logits = JoinedCache(len(prompts), max(map(len, prompts))), None
        for part in micro_batches([Sample(list(p), [False] * len(p)) for p in rows_of], TOKENS_AT_ONCE):
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
        return forward(self.student.model, tokens, mask, (mask.cumsum(-1) - 1).clamp(min=0), None)


def _mask(prompts: list[list[int]], device: torch.device) -> Tensor:
    """Which columns each row may look at: its prompt, at the right."""
    width = max(len(p) for p in prompts)
    return torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)


def _can_be_recorded(causal: Any) -> bool:
    """Whether what it computes never depends on the numbers, and a mask of booleans says to it what is meant.

    Experts are picked and long contexts stretched by what the numbers are; attention that adds its mask, or makes
    one of its own from where tokens stand (ALiBi), takes another kind."""
    config = causal.config.get_text_config()
    experts = any(getattr(config, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts"))
    stretched = any(kind in str(getattr(config, "rope_parameters", "")) for kind in ("dynamic", "longrope"))
    return has_shared_heads(causal) and not (experts or stretched or getattr(config, "alibi", False))


def _room(device: torch.device) -> float:
    """Bytes that one batch of replies may take: a quarter of a GPU, half of a machine's own memory, whatever else is
    there now, or a resumed run might write in another way than before."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory / 4
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2


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
