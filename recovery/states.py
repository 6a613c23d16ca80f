"""Where the student is taught: windows of documents, conversations, its own rollouts, and mixtures of them.

A draw is a function of (seed, step) and, for rollouts, of the student's weights: a resumed run sees what it
would have seen.
"""

import random
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

from recovery.batch import Sample
from recovery.distributed import mine, rank
from recovery.engines import Engine, Sampling
from recovery.errors import RecoverError
from recovery.models.chat import Chat, Message
from recovery.models.students import Student


class States(Protocol):
    def draw(self, student: Student, step: int) -> list[Sample]: ...


class Shuffled:
    """An endless walk through n items, each epoch in its own order, reachable at any place without walking there."""

    def __init__(self, n: int, seed: int):
        if n == 0:
            raise RecoverError("there is nothing to learn from: the data is empty")
        self.n, self.seed = n, seed

    def take(self, start: int, count: int) -> list[tuple[int, int]]:
        """(epoch, item) of the places start … start + count − 1."""
        places = [divmod(i, self.n) for i in range(start, start + count)]
        orders = {epoch: self._order(epoch) for epoch in {epoch for epoch, _ in places}}
        return [(epoch, orders[epoch][place]) for epoch, place in places]

    def _order(self, epoch: int) -> list[int]:
        order = list(range(self.n))
        random.Random(f"{self.seed}/{epoch}").shuffle(order)
        return order


class Windows:
    """Documents end to end in the seed's order, each with its end, cut into windows: a window is made when asked for.

    Documents may be any sequence of sequences, one that reads from a disk too: all of them are never held at once."""

    def __init__(self, documents: Sequence[Sequence[int]], end: int, window: int, seed: int):
        self.documents, self.end, self.window = documents, end, window
        self.order = array("Q", (i for _, i in Shuffled(len(documents), seed).take(0, len(documents))))
        self.starts = array("Q", accumulate((len(documents[i]) + 1 for i in self.order), initial=0))

    @property
    def tokens(self) -> int:
        """Taught once an epoch: every token but the very first."""
        return self.starts[-1] - 1

    def __len__(self) -> int:
        return max(0, -(-self.tokens // self.window))

    def __getitem__(self, index: int) -> list[int]:
        return [token for piece in self.pieces(index) for token in piece]

    def pieces(self, index: int) -> list[list[int]]:
        """A window document by document. Windows overlap by one token, which the next one needs as its first state."""
        first, room = range(len(self))[index] * self.window, self.window + 1
        cut: list[list[int]] = []
        document = bisect_right(self.starts, first) - 1
        while room and document < len(self.order):
            begin = max(0, first - self.starts[document])
            piece = list(self.documents[self.order[document]][begin : begin + room])
            if len(piece) < room:
                piece.append(self.end)
            cut.append(piece)
            room -= len(piece)
            document += 1
        return cut


class Documents:
    """Documents end to end, cut into windows; every token but the very first is a target exactly once an epoch.

    Where they are not read `across` their borders, each document in a window is a row of its own: no token attends to
    another document, whatever the model, and the first token of each is no target.

    Every row starts with `begin`, if there is one, which is no target either; no row is longer for it.

    Of the windows of a draw the first `soft` are a teacher's to judge: the `domain`'s, if there are several."""

    def __init__(
        self,
        documents: Sequence[Sequence[int]],
        end: int,
        *,
        window: int,
        rows: int,
        seed: int = 0,
        across: bool = True,
        begin: int | None = None,
        soft: int = 0,
        domain: str | None = None,
    ):
        self.window, self.rows, self.across = window, rows, across
        self.soft, self.domain = soft, domain
        if begin is not None and window < 2:
            raise RecoverError(
                "a window of one token has no room beside the token that rows begin with: make it longer"
            )
        self.before = [] if begin is None else [begin]
        self.windows = Windows(documents, end, window - len(self.before), seed)
        self.order = Shuffled(len(self.windows), seed + 1)

    @property
    def tokens(self) -> int:
        return self.windows.tokens

    def draw(self, student: Student, step: int) -> list[Sample]:
        drawn = mine(list(enumerate(self.order.take(step * self.rows, self.rows))))
        return [
            self._row(tokens, soft=place < self.soft)
            for place, (_, window) in drawn
            for tokens in ([self.windows[window]] if self.across else self.windows.pieces(window))
        ]

    def _row(self, tokens: list[int], *, soft: bool) -> Sample:
        targets = [False] * len(self.before) + [False] + [True] * (len(tokens) - 1)
        return Sample(self.before + tokens, targets, soft=soft, domain=self.domain)


class Written:
    """Rows that somebody else wrote: a teacher's answers, say."""

    def __init__(self, sequences: Sequence[Sample], *, rows: int, seed: int = 0):
        self.sequences, self.rows = sequences, rows
        self.order = Shuffled(len(sequences), seed)

    def draw(self, student: Student, step: int) -> list[Sample]:
        return [self.sequences[i] for _, i in mine(self.order.take(step * self.rows, self.rows))]


class Conversations(Written):
    """Chats of which the assistant's tokens alone are targets, several turns and system prompts included."""

    def __init__(self, conversations: Sequence[list[Message]], chat: Chat, *, rows: int, seed: int = 0):
        super().__init__([Sample(*chat.conversation(messages)) for messages in conversations], rows=rows, seed=seed)


@dataclass(frozen=True)
class Prompt:
    text: str
    tokens: list[int]
    domain: str | None = None

    def with_reply(self, reply: list[int], **about: Any) -> Sample:
        """The prompt and what somebody wrote after it, of which the reply alone is a target."""
        targets = [False] * len(self.tokens) + [True] * len(reply)
        return Sample(self.tokens + reply, targets, prompt=self.text, domain=self.domain, **about)


class Rollouts:
    """What the student itself writes after each prompt, `group` times."""

    def __init__(
        self,
        prompts: Sequence[Prompt],
        engine: Engine,
        *,
        rows: int,
        group: int = 1,
        max_new_tokens: int = 256,
        seed: int = 0,
    ):
        if rows % group:
            raise RecoverError(f"{rows} rollouts a step do not divide into groups of {group}; choose a multiple")
        self.prompts, self.engine, self.rows, self.group = prompts, engine, rows, group
        self.max_new_tokens, self.seed = max_new_tokens, seed
        self.order = Shuffled(len(prompts), seed)

    def draw(self, student: Student, step: int) -> list[Sample]:
        self.engine.sync(student)
        count = self.rows // self.group
        # A group stays on one rank, which needs the whole of it for its baseline.
        places = mine(list(enumerate(self.order.take(step * count, count))))
        chosen = [(group, self.prompts[i]) for group, (_, i) in places for _ in range(self.group)]
        sampling = Sampling(self.max_new_tokens, seed=(self.seed * 1_000_003 + step * 1009 + rank()) % 2**31)
        written = self.engine.generate([p.tokens for _, p in chosen], sampling)
        return [
            prompt.with_reply(
                generation.tokens, logprobs=generation.logprobs, group=group, truncated=not generation.finished
            )
            for (group, prompt), generation in zip(chosen, written, strict=True)
        ]


class Mixture:
    """Every draw joins a draw from each part: α, or chat among documents, is a matter of the parts' sizes."""

    def __init__(self, *parts: States):
        self.parts = parts

    def draw(self, student: Student, step: int) -> list[Sample]:
        return [sequence for part in self.parts for sequence in part.draw(student, step)]
