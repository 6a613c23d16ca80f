"""Rollouts from the student's own modules: runs everywhere, always in step with the weights.

Prompts of like length share a batch; a row that has ended leaves it, so that the work left is the work done.
"""

from collections.abc import Sequence as Seq
from typing import Any

import torch
from torch import Tensor

from recovery.batch import Batch, Sequence, micro_batches
from recovery.engines import Generation, Sampling
from recovery.students import Student
from recovery.vocabulary import token_logprobs


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
        for rows in micro_batches([s for s in keyed if s.target_count], 16384):
            batch = Batch.of(rows, self.student.chat.pad_id, self.student.device)
            values = token_logprobs(self.student.hidden(batch), self.student.head, batch.target_tokens)
            for s, part in zip(rows, values.split([s.target_count for s in rows]), strict=True):
                result[s.group or 0] = part.tolist()
        return result

    def _continue(self, prompts: list[list[int]], sampling: Sampling, random: torch.Generator) -> list[Generation]:
        model, chat, device = self.student.model, self.student.chat, self.student.device
        longest = max(len(p) for p in prompts)
        padded = [[chat.pad_id] * (longest - len(p)) + p for p in prompts]
        tokens = torch.tensor(padded, device=device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device)
        ends = torch.tensor(sorted(chat.eos_ids), device=device)
        rows = torch.arange(len(prompts), device=device)  # which prompt each row of the shrinking batch belongs to
        written: list[list[int]] = [[] for _ in prompts]
        logprobs: list[list[float]] = [[] for _ in prompts]
        finished = [False] * len(prompts)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache: Any = None
        for _ in range(sampling.max_new_tokens):
            output = model(
                input_ids=tokens,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = output.past_key_values
            chosen, values = _choose(output.logits[:, -1], sampling, random)
            over = torch.isin(chosen, ends)
            step = zip(rows.tolist(), chosen.tolist(), values.tolist(), over.tolist(), strict=True)
            for row, token, value, ended in step:
                written[row].append(token)
                logprobs[row].append(value)
                finished[row] = ended
            if over.all():
                break
            if over.any():
                keep = (~over).nonzero().squeeze(-1)
                rows, chosen, mask, positions = rows[keep], chosen[keep], mask[keep], positions[keep]
                cache.batch_select_indices(keep)
            tokens = chosen[:, None]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=-1)
            positions = positions[:, -1:] + 1
        return [Generation(w, p, f) for w, p, f in zip(written, logprobs, finished, strict=True)]


def _choose(logits: Tensor, sampling: Sampling, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """The next token of each row, and its log-prob under the plain distribution (T = 1, nothing cut off)."""
    log_p = torch.log_softmax(logits.float(), dim=-1)
    if sampling.temperature == 0:
        chosen = log_p.argmax(-1)
    else:
        weights = torch.softmax(logits.float() / sampling.temperature, dim=-1)
        chosen = torch.multinomial(weights, 1, generator=random).squeeze(-1)
    return chosen, log_p.gather(-1, chosen[:, None]).squeeze(-1)
