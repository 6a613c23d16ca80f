"""Rows of states, and the padded tensors they become for one forward pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """One row of states: its tokens, and which of them are what the student is taught there."""

    tokens: list[int]
    targets: list[bool]  # never the first token: nothing precedes it
    logprobs: list[float] | None = None  # rollouts: log-prob of each target token under the policy that wrote it
    group: int | None = None  # rollouts of one prompt share a group
    truncated: bool = False
    prompt: str | None = None
    domain: str | None = None
    reward: float | None = None
    baseline: float = 0.0
    soft: bool = False  # the teacher wrote or learned it, and can be asked what else it would say at each of its states

    @property
    def target_count(self) -> int:
        return sum(self.targets)


@dataclass(frozen=True)
class Batch:
    """Right-padded rows. Padding is known by position alone, so a pad token that is also the EOS is still learned.

    There is no attention mask: in a causal model no token sees the padding to its right, and without a mask attention
    takes its fastest path."""

    sequences: list[Sample]
    tokens: Tensor  # [rows, length]
    target_rows: Tensor  # [targets]
    target_columns: Tensor  # [targets]

    @classmethod
    def of(cls, sequences: list[Sample], pad_id: int, device: torch.device | str = "cpu") -> "Batch":
        length = max(len(s.tokens) for s in sequences)
        tokens = torch.full((len(sequences), length), pad_id, dtype=torch.long)
        targets = torch.zeros((len(sequences), length), dtype=torch.bool)
        for row, s in enumerate(sequences):
            tokens[row, : len(s.tokens)] = torch.tensor(s.tokens)
            targets[row, : len(s.tokens)] = torch.tensor(s.targets)
        targets[:, 0] = False
        rows, columns = targets.nonzero(as_tuple=True)
        return cls(sequences, tokens.to(device), rows.to(device), columns.to(device))

    def only(self, rows: list[int]) -> tuple["Batch", Tensor]:
        """Some of the rows, and where their targets stand among those of the whole."""
        length = max(len(self.sequences[row].tokens) for row in rows)
        new = torch.full((len(self.sequences),), -1, dtype=torch.long)
        new[rows] = torch.arange(len(rows))
        owners = new.to(self.tokens.device)[self.target_rows]
        places = (owners >= 0).nonzero().squeeze(-1)
        mine = [self.sequences[row] for row in rows]
        return Batch(mine, self.tokens[rows, :length], owners[places], self.target_columns[places]), places

    @property
    def target_tokens(self) -> Tensor:
        return self.tokens[self.target_rows, self.target_columns]

    def predicting(self, hidden: Tensor) -> Tensor:
        """The states [targets, width] from which each target token is predicted."""
        return hidden[self.target_rows, self.target_columns - 1]

    def rollout_logprobs(self) -> Tensor | None:
        if any(s.logprobs is None for s in self.sequences):
            return None
        flat = [value for s in self.sequences for value in s.logprobs or []]
        return torch.tensor(flat, dtype=torch.float32, device=self.tokens.device)

    def per_target(self, values: Sequence[float]) -> Tensor:
        """One value a row, repeated for each of the row's target tokens."""
        spread = torch.tensor(values, dtype=torch.float32, device=self.tokens.device)
        return spread[self.target_rows]


def micro_batches(sequences: list[Sample], tokens_at_most: int) -> Iterator[list[Sample]]:
    """Rows of like length together, so that rows × longest row stays under the bound and little of it is padding;
    those that are soft apart from those that are not, since only they have a teacher to be read by.

    Another pass costs something too: a batch is cut short when more than a 32nd of the bound would be padding."""
    current: list[Sample] = []
    tokens = 0
    for s in sorted(sequences, key=lambda s: (s.soft, len(s.tokens))):
        area = len(s.tokens) * (len(current) + 1)
        padding = area - tokens - len(s.tokens)
        full = area > tokens_at_most or padding > tokens_at_most // 32
        if current and (full or s.soft != current[-1].soft):
            yield current
            current, tokens = [], 0
        current.append(s)
        tokens += len(s.tokens)
    if current:
        yield current
