"""The clean model as a teacher on vLLM servers, which send log-probs of some tokens only.

For every target they send the log-prob of the token that the student sampled and those of the teacher's likeliest
tokens. All other tokens together form one bucket, which takes whatever probability the student gives them: a bare list
would say nothing against tokens that the student favours and the teacher does not. The divergence over these events is
a lower bound of the exact one, but for which of the stops ends a reply; the log-prob of the sampled token, which the
sampled estimators use, is exact."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recovery.divergences import NEVER, identity_of_stops, is_in, merge_listed_stops, with_tail
from recovery.engines.served_model import Probe, identify, prompt_logprobs, serve_command
from recovery.engines.servers import Server, Servers
from recovery.errors import RecoverError
from recovery.models.students import Student
from recovery.samples import Batch
from recovery.teachers import AsLargeAsStudent, Compared, Part, TeacherLogprobs

LISTED = 20  # tokens at each target, the one sampled included: what vLLM sends without --max-logprobs


class ServerTeacher(AsLargeAsStudent):
    """`reference` is the model that the servers must serve, and `expected` are its log-probs of the tokens of
    `Probe(student.chat)`."""

    def __init__(
        self,
        student: Student,
        addresses: str,  # with a comma between several, which share the rows
        reference: str,
        expected: Sequence[float],
        *,
        listed: int = LISTED,
    ):
        self.reference, self._student, self._expected = reference, student, list(expected)
        self._servers, self._probe = Servers(addresses, self._prepare), Probe(student.chat)
        self.listed = min(listed, len(student.head.weight) - 1)
        self._servers.connect()

    def distribution(self, batch: Batch) -> "ListedLogprobs":
        def score_row(server: Server, row: int) -> list[list[tuple[int, float]]]:
            sample = batch.samples[row]
            found = prompt_logprobs(server, server.model, sample.tokens, self.listed)
            pairs = zip(sample.tokens[1:], found, sample.targets[1:], strict=True)
            return [self._listed_first(token, at) for token, at, is_target in pairs if is_target]

        rows = self._servers.run(score_row, len(batch.samples), "texts scored")
        flat = [pair for row in rows for target in row for pair in target]
        vocabulary = len(self._student.head.weight)
        if not all(0 <= token < vocabulary for token, _ in flat):
            raise self._lists_other_tokens()
        shape, device = (-1, self.listed), batch.tokens.device
        return ListedLogprobs(
            torch.tensor([token for token, _ in flat], device=device).view(shape),
            torch.tensor([value for _, value in flat], device=device).view(shape),
        )

    def _listed_first(self, token: int, logprobs: dict[int, float]) -> list[tuple[int, float]]:
        """The token that was sampled, then the likeliest others: always as many."""
        others = sorted(((t, p) for t, p in logprobs.items() if t != token), key=lambda pair: -pair[1])
        listed = [(token, logprobs[token]), *others][: self.listed]
        if len(listed) < self.listed:
            raise self._lists_other_tokens()
        return listed

    def _lists_other_tokens(self) -> RecoverError:
        return RecoverError(
            f"A server lists other tokens than the teacher {self.reference} has. Serve that model with vLLM 0.32."
        )

    def _prepare(self, server: Server) -> None:
        if server.serves is self and not server.may_have_restarted:
            return
        if server.serves is not self:
            identify(server, self._student.chat)
        problem = f"serves {server.model}, which is another model than the teacher {self.reference}"
        advice = f"Start it with that model: {serve_command(server, self.reference)}"
        self._probe.check(server, server.model, self._expected, problem, advice)
        server.serves = self


@dataclass(frozen=True)
class ListedLogprobs(TeacherLogprobs):
    """A teacher's log-probs of some tokens at each target, the sampled one first."""

    tokens: Tensor  # [targets, listed]
    values: Tensor

    def logprobs(self, part: Part) -> Tensor:
        raise RecoverError("A teacher on a server lists some tokens only. Load this teacher on this machine.")

    def compare(self, student: Tensor, part: Part, stops: Sequence[int] = ()) -> Compared:
        """Only stops that are listed are merged: what the teacher gives to the others is unknown."""
        ours, theirs = student.gather(-1, self.tokens[part]), self.values[part].to(student.dtype)
        identity: Tensor | float = 0.0
        if len(stops) > 1:
            is_stop = is_in(self.tokens[part], stops)
            identity = identity_of_stops(*(x.masked_fill(~is_stop, NEVER) for x in (ours, theirs)))
            ours, theirs = merge_listed_stops(ours, is_stop), merge_listed_stops(theirs, is_stop)
        return Compared(with_tail(ours), with_tail(theirs), identity)

    def at_tokens(self, events: Tensor, tokens: Tensor, part: Part, stops: Sequence[int] = ()) -> Tensor:
        """The sampled token is listed first, so it is also the first of the stops if it is one."""
        if not torch.equal(tokens, self.tokens[part][:, 0]):
            raise ValueError("Only the sampled tokens have been scored.")
        return events[:, 0]

    def stopping(self, events: Tensor, part: Part, stops: Sequence[int]) -> Tensor:
        return (events[:, :-1].exp() * is_in(self.tokens[part], stops)).sum(-1)

    def likeliest(self, part: Part, count: int) -> tuple[Tensor, Tensor]:
        top = self.values[part].topk(min(count, self.values.shape[-1]))
        return self.tokens[part].gather(-1, top.indices), top.values
