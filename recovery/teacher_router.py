"""Several teachers as one: each row is judged by the one that knows its domain.

The clean model knows how to behave, say, and a later checkpoint what was learned since: what either of them would say
of the other's rows is not asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recovery.batch import Batch, Sample
from recovery.teachers import Part, Teacher, TeacherLogprobs


class RouterTeacher:
    """`by_domain` for the rows of their domains, `otherwise` for all others."""

    def __init__(self, otherwise: Teacher, by_domain: Mapping[str, Teacher]):
        self.otherwise, self.by_domain = otherwise, dict(by_domain)

    def flops(self, sequences: list[Sample]) -> float:
        return sum(teacher.flops([sequences[row] for row in rows]) for teacher, rows in self._asked(sequences))

    def distribution(self, batch: Batch) -> TeacherLogprobs:
        asked = self._asked(batch.sequences)
        if len(asked) == 1:
            return asked[0][0].distribution(batch)
        who = torch.zeros_like(batch.target_rows)
        place = torch.zeros_like(batch.target_rows)
        opinions = []
        for number, (teacher, rows) in enumerate(asked):
            theirs, places = batch.only(rows)
            opinions.append(teacher.distribution(theirs))
            who[places] = number
            place[places] = torch.arange(len(places), device=places.device)
        return Routed(opinions, who, place)

    def _asked(self, sequences: Sequence[Sample]) -> list[tuple[Teacher, list[int]]]:
        """Each teacher that has rows here, and which."""
        rows: dict[str | None, list[int]] = {}
        for row, sequence in enumerate(sequences):
            rows.setdefault(sequence.domain if sequence.domain in self.by_domain else None, []).append(row)
        return [(self.otherwise if d is None else self.by_domain[d], theirs) for d, theirs in rows.items()]


@dataclass(frozen=True)
class Routed:
    """The opinions of several teachers, each on targets of its own."""

    opinions: list[TeacherLogprobs]
    who: Tensor  # [targets]: which of them
    place: Tensor  # [targets]: where among that one's targets

    def logprobs(self, part: Part) -> Tensor:
        who, place = self.who[part], self.place[part]
        whole: Tensor | None = None
        for number, opinion in enumerate(self.opinions):
            here = (who == number).nonzero().squeeze(-1)
            if len(here) == 0:
                continue
            said = opinion.logprobs(place[here])
            if len(here) == len(who):
                return said
            whole = said.new_empty(len(who), said.shape[-1]) if whole is None else whole
            whole[here] = said
        assert whole is not None
        return whole

    def logprobs_of(self, part: Part, tokens: Tensor) -> Tensor:
        return self.logprobs(part).gather(-1, tokens)

    def of_tokens(self, tokens: Tensor) -> Tensor:
        said, places = [], []
        for number, opinion in enumerate(self.opinions):
            places.append((self.who == number).nonzero().squeeze(-1))
            said.append(opinion.of_tokens(tokens[places[-1]]))
        whole = torch.cat(said)
        return whole.index_copy(0, torch.cat(places), whole)
