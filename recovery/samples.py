"""Training samples (token rows), and the padded batches they become for one forward pass."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from recovery.distributed import size


@dataclass(frozen=True)
class Sample:
    """One training row: its tokens, and which of them are targets of the loss."""

    tokens: list[int]
    targets: list[bool]  # never the first token: nothing precedes it
    logprobs: list[float] | None = None  # rollouts: log-prob of each target token under the policy that sampled it
    group: int | None = None  # rollouts of one prompt share a group
    truncated: bool = False
    prompt: str | None = None
    teacher_prompt: list[int] | None = None  # the whole prompt that a teacher in context reads; None: the student's
    domain: str | None = None  # selects the teacher where several are routed by domain
    reward: float | None = None
    advantage: float = 0.0  # how much better its reward is than its group's
    soft_labels: bool = False  # learn the teacher's whole distribution at each target instead of the label
    writing_flops: float = 0.0  # of writing it, where more was computed than its tokens show
    use_labels: bool = False  # learn the labels, where other rows learn from a teacher or a reward
    prompt_length: int = 0  # tokens before the reply, where there is a prompt of its own for the teacher

    @classmethod
    def behind(cls, context: list[int], targets: list[int], **others: Any) -> "Sample":
        """A row whose targets are the tokens behind a context."""
        return cls([*context, *targets], [False] * len(context) + [True] * len(targets), **others)

    @property
    def target_count(self) -> int:
        return sum(self.targets)

    @property
    def for_teacher(self) -> "Sample":
        """The row that a teacher in context reads: its own prompt, then the same reply with the same targets."""
        if self.teacher_prompt is None:
            return self
        prompt, length = self.teacher_prompt, self.prompt_length
        return replace(
            self,
            tokens=prompt + self.tokens[length:],
            targets=[False] * len(prompt) + self.targets[length:],
            teacher_prompt=None,
            prompt_length=len(prompt),
        )

    @property
    def longest_row(self) -> int:
        """The length of the longer of two rows: the student's and the teacher's."""
        longer_prompt = 0 if self.teacher_prompt is None else len(self.teacher_prompt) - self.prompt_length
        return len(self.tokens) + max(0, longer_prompt)


@dataclass(frozen=True)
class Batch:
    """Right-padded rows. Padding is known by position, so a pad token that is also the EOS is still learned.

    There is no attention mask: in a causal model no token attends to the padding at its right, and attention runs
    fastest without a mask."""

    samples: list[Sample]
    tokens: Tensor  # [rows, length]
    target_rows: Tensor  # [targets]
    target_columns: Tensor  # [targets]
    shared: int = 0  # tokens that all rows begin with, and which a frozen model may read once

    @classmethod
    def collate(cls, samples: list[Sample], pad_id: int, device: torch.device | str = "cpu") -> "Batch":
        length = max(len(s.tokens) for s in samples)
        tokens = torch.full((len(samples), length), pad_id, dtype=torch.long)
        targets = torch.zeros((len(samples), length), dtype=torch.bool)
        for row, s in enumerate(samples):
            tokens[row, : len(s.tokens)] = torch.tensor(s.tokens)
            targets[row, : len(s.tokens)] = torch.tensor(s.targets)
        targets[:, 0] = False
        rows, columns = targets.nonzero(as_tuple=True)
        return cls(samples, tokens.to(device), rows.to(device), columns.to(device))

    @property
    def target_tokens(self) -> Tensor:
        return self.tokens[self.target_rows, self.target_columns]

    def rollout_logprobs(self) -> Tensor | None:
        if any(s.logprobs is None for s in self.samples):
            return None
        flat = [value for s in self.samples for value in s.logprobs or []]
        return torch.tensor(flat, dtype=torch.float32, device=self.tokens.device)

    def per_target(self, values: Sequence[float]) -> Tensor:
        row_values = torch.tensor(values, dtype=torch.float32, device=self.tokens.device)
        return row_values[self.target_rows]


def common_start(rows: Sequence[Sequence[int]]) -> int:
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False)))


def micro_batches(samples: list[Sample], max_tokens: int, domains: Container[str] = ()) -> Iterator[list[Sample]]:
    """Cut samples, sorted by length, into groups of at most `max_tokens` (rows × longest row) in each process.

    All processes cut the same groups, so they run the same number of passes; each takes its rows of every group.
    A row counts as long as the teacher's where a teacher in context reads more than the student.
    Samples that learn from different sources are never mixed: not all need a pass of the teacher, and each of
    `domains` has a teacher of its own. A group also ends when more than a 32nd of `max_tokens` would be padding; a
    stricter limit costs more in extra passes."""
    current: list[Sample] = []
    tokens = 0
    processes = size()
    for s in sorted(samples, key=lambda s: (*_source(s, domains), s.longest_row)):
        length = s.longest_row
        area = length * -(-(len(current) + 1) // processes)
        padding = length * (len(current) + 1) - tokens - length
        full = area > max_tokens or padding > processes * max_tokens // 32
        if current and (full or _source(s, domains) != _source(current[-1], domains)):
            yield current
            current, tokens = [], 0
        current.append(s)
        tokens += length
    if current:
        yield current


def _source(sample: Sample, domains: Container[str]) -> tuple[bool, bool, bool, str]:
    domain = sample.domain if sample.domain and sample.domain in domains else ""
    return sample.soft_labels, sample.use_labels, sample.reward is None, domain
