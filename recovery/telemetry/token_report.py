"""A few rollouts, token by token: how far the student is from its teacher there, and what both would rather say."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recovery.batch import Batch, Sample
from recovery.losses.chunked_loss import CHUNK_ELEMENTS, chunks
from recovery.losses.divergences import reverse_kl
from recovery.models.students import Student
from recovery.teachers import Teacher

Choices = list[tuple[str, float]]  # likeliest first: a token's text and its probability


@dataclass(frozen=True)
class TokenSeen:
    text: str
    kl: float
    student: Choices
    teacher: Choices


@torch.no_grad()
def look_at(student: Student, teacher: Teacher, rows: Sequence[Sample], choices: int = 3) -> list[list[TokenSeen]]:
    return [_row(student, teacher, row, choices) for row in rows]


def _row(student: Student, teacher: Teacher, row: Sample, choices: int) -> list[TokenSeen]:
    batch = Batch.of([row], student.chat.pad_id, student.device)
    hidden, head, opinion = student.hidden(batch), student.head, teacher.distribution(batch)
    text = student.chat.tokenizer.decode
    seen: list[TokenSeen] = []
    for part in chunks(len(hidden), len(head.weight), CHUNK_ELEMENTS):  # one chunk of the vocabulary at a time
        ours, theirs = torch.log_softmax(head.logits(hidden[part]), dim=-1), opinion.logprobs(part)
        columns = (batch.target_tokens[part].tolist(), reverse_kl(ours, theirs).tolist())
        said = zip(*columns, _likeliest(ours, choices), _likeliest(theirs, choices), strict=True)
        seen += [
            TokenSeen(text([token]), kl, [(text([t]), p) for t, p in mine], [(text([t]), p) for t, p in wanted])
            for token, kl, mine, wanted in said
        ]
    return seen


def _likeliest(logprobs: Tensor, choices: int) -> list[list[tuple[int, float]]]:
    top = logprobs.exp().topk(min(choices, logprobs.shape[-1]))
    return [list(zip(t, p, strict=True)) for t, p in zip(top.indices.tolist(), top.values.tolist(), strict=True)]
