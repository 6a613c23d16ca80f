"""A few rollouts, token by token: how far the student is from its teacher there, and what both would rather say."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from recovery.batch import Batch, Sequence
from recovery.divergences import reverse_kl
from recovery.students import Student
from recovery.teachers import Teacher

Choices = list[tuple[str, float]]  # likeliest first: a token's text and its probability


@dataclass(frozen=True)
class TokenSeen:
    text: str
    kl: float
    student: Choices
    teacher: Choices


@torch.no_grad()
def look_at(student: Student, teacher: Teacher, rows: Seq[Sequence], choices: int = 3) -> list[list[TokenSeen]]:
    return [_row(student, teacher, row, choices) for row in rows]


def _row(student: Student, teacher: Teacher, row: Sequence, choices: int) -> list[TokenSeen]:
    batch = Batch.of([row], student.chat.pad_id, student.device)
    ours = torch.log_softmax(student.head.logits(student.hidden(batch)), dim=-1)
    theirs = teacher.distribution(batch).logprobs(slice(None))
    text = student.chat.tokenizer.decode
    seen = zip(
        batch.target_tokens.tolist(),
        reverse_kl(ours, theirs).tolist(),
        _likeliest(ours, choices),
        _likeliest(theirs, choices),
        strict=True,
    )
    return [
        TokenSeen(text([token]), kl, [(text([t]), p) for t, p in said], [(text([t]), p) for t, p in wanted])
        for token, kl, said, wanted in seen
    ]


def _likeliest(logprobs: Tensor, choices: int) -> list[list[tuple[int, float]]]:
    top = logprobs.exp().topk(min(choices, logprobs.shape[-1]))
    return [list(zip(t, p, strict=True)) for t, p in zip(top.indices.tolist(), top.values.tolist(), strict=True)]
