"""Token reports of a few rollouts: the KL to the teacher at each token, and what both models find likeliest there."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recovery.losses.chunked_loss import CHUNK_ELEMENTS, chunks
from recovery.losses.divergences import reverse_kl
from recovery.models.students import Student
from recovery.samples import Batch, Sample
from recovery.teachers import Teacher, likeliest

Choices = list[tuple[str, float]]  # likeliest first: a token's text and its probability


@dataclass(frozen=True)
class TokenReport:
    text: str
    kl: float
    student: Choices
    teacher: Choices


@torch.no_grad()
def report_tokens(
    student: Student, teacher: Teacher, samples: Sequence[Sample], choices: int = 3
) -> list[list[TokenReport]]:
    """Report the target tokens of each sample, with the `choices` likeliest tokens of both models."""
    return [_report_sample(student, teacher, sample, choices) for sample in samples]


def _report_sample(student: Student, teacher: Teacher, sample: Sample, choices: int) -> list[TokenReport]:
    batch = Batch.collate([sample], student.chat.pad_id, student.device)
    hidden, head, distribution = student.hidden(batch), student.head, teacher.distribution(batch)
    decode, stops = student.chat.tokenizer.decode, student.stops

    def as_text(likeliest: list[tuple[int, float]]) -> Choices:
        return [(decode([token]), probability) for token, probability in likeliest]

    reports: list[TokenReport] = []
    for part in chunks(len(hidden), len(head.weight), CHUNK_ELEMENTS):  # keeps [positions × vocabulary] small
        ours = torch.log_softmax(head.logits(hidden[part]), dim=-1)
        tokens, kls = batch.target_tokens[part].tolist(), reverse_kl(*distribution.compare(ours, part, stops)).tolist()
        theirs = distribution.likeliest(part, choices)
        columns = zip(tokens, kls, _pairs(*likeliest(ours, choices)), _pairs(*theirs), strict=True)
        reports += [
            TokenReport(decode([token]), kl, as_text(student_top), as_text(teacher_top))
            for token, kl, student_top, teacher_top in columns
        ]
    return reports


def _pairs(tokens: Tensor, logprobs: Tensor) -> list[list[tuple[int, float]]]:
    """Each token with its probability."""
    return [list(zip(t, p, strict=True)) for t, p in zip(tokens.tolist(), logprobs.exp().tolist(), strict=True)]
