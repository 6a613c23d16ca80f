"""States: where training prefixes come from (documents, conversations, rollouts), and draws made from other draws.

A draw is a function of (seed, step) and, for rollouts, of the student's weights, so a resumed run draws the same rows.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from random import Random
from typing import Any, Protocol

from recovery.engines import Engine, Sampling
from recovery.errors import RecoverError
from recovery.models.students import Student
from recovery.samples import Sample


class States(Protocol):
    def draw(self, student: Student, step: int) -> list[Sample]: ...


class ShuffledOrder:
    """An endless order of n items, shuffled anew each epoch, with random access to any position."""

    def __init__(self, n: int, seed: int):
        if n == 0:
            raise RecoverError("The data is empty, so there is nothing to train on. Add some data.")
        self.n, self.seed = n, seed
        self._orders: dict[int, Sequence[int]] = {}  # of the epochs of the last draw

    def take(self, start: int, count: int) -> list[tuple[int, int]]:
        """Return (epoch, item) for the positions start … start + count − 1."""
        positions = [divmod(i, self.n) for i in range(start, start + count)]
        known, epochs = self._orders, {epoch for epoch, _ in positions}
        self._orders = {epoch: known[epoch] if epoch in known else self._order(epoch) for epoch in epochs}
        return [(epoch, self._orders[epoch][position]) for epoch, position in positions]

    def of_step(self, step: int, rows: float, after: int = 0) -> list[int]:
        """The items of a step that takes so many, on average, the first `after` of which are left out."""
        first, last = (math.floor(s * rows + 1e-9) for s in (step, step + 1))  # a row less one rounding is a row
        return [item for _, item in self.take(first + after, last - first - after)]

    def _order(self, epoch: int) -> Sequence[int]:
        order = list(range(self.n))
        Random(f"{self.seed}/{epoch}").shuffle(order)
        return array("Q", order)  # a fifth of a list's memory


class TokenWindows:
    """Documents concatenated in a shuffled order, each between `begin` and `end_id`, and cut into windows on demand.

    Documents may be any sequence of sequences, also one that reads from disk: they are never all held in memory."""

    def __init__(
        self, documents: Sequence[Sequence[int]], end_id: int, window: int, seed: int, begin: Sequence[int] = ()
    ):
        self.documents, self.begin, self.end_id, self.window = documents, list(begin), end_id, window
        self.order = array("Q", (i for _, i in ShuffledOrder(len(documents), seed).take(0, len(documents))))
        added = len(self.begin) + 1
        self.starts = array("Q", accumulate((len(documents[i]) + added for i in self.order), initial=0))

    def __len__(self) -> int:
        return max(0, -(-(self.starts[-1] - 1) // self.window))

    def __getitem__(self, index: int) -> list[int]:
        """Windows overlap by one token, the first state of the next window."""
        first, room = range(len(self))[index] * self.window, self.window + 1
        tokens: list[int] = []
        document = bisect_right(self.starts, first) - 1
        while room and document < len(self.order):
            offset = max(0, first - self.starts[document])
            piece = self.begin[offset : offset + room]
            read = max(0, offset - len(self.begin))
            piece += self.documents[self.order[document]][read : read + room - len(piece)]
            if len(piece) < room:
                piece.append(self.end_id)
            tokens += piece
            room -= len(piece)
            document += 1
        return tokens


class Documents:
    """Documents concatenated and cut into windows; every token but the very first is a target exactly once an epoch.

    Every document and every row starts with `begin_id` if there is one. It is no target and counts towards the row's
    length.

    The first `soft_rows` windows of each draw have soft labels, from the teacher of `domain` if there are several.
    With `use_labels` the documents' own tokens are learned beside rows that learn from a teacher."""

    def __init__(
        self,
        documents: Sequence[Sequence[int]],
        end_id: int,
        *,
        window: int,
        rows: float,  # a step, on average
        seed: int = 0,
        begin_id: int | None = None,
        soft_rows: int = 0,
        domain: str | None = None,
        use_labels: bool = False,
    ):
        self.window, self.rows = window, rows
        self.soft_rows, self.domain, self.use_labels = soft_rows, domain, use_labels
        if begin_id is not None and window < 3:
            raise RecoverError("A window of two tokens has no room beside the BOS token. Use a longer window.")
        self.begin_id, added = begin_id, begin_id is not None
        begin = [] if begin_id in (None, end_id) else [begin_id]  # a separator that is the BOS stands there anyway
        self.windows = TokenWindows(documents, end_id, window - added, seed, begin)
        self.order = ShuffledOrder(len(self.windows), seed + 1)

    @property
    def tokens(self) -> int:
        """Target tokens of an epoch."""
        windows = self.windows
        return windows.starts[-1] - (len(windows.documents) if windows.begin else 1)

    def draw(self, student: Student, step: int) -> list[Sample]:
        drawn = enumerate(self.order.of_step(step, self.rows))
        return [self._row(self.windows[i], soft_labels=position < self.soft_rows) for position, i in drawn]

    def _row(self, tokens: list[int], *, soft_labels: bool) -> Sample:
        begin = [] if self.begin_id in (None, tokens[0]) else [self.begin_id]
        targets = [False] * (len(begin) + 1) + [token not in self.windows.begin for token in tokens[1:]]
        use_labels = self.use_labels and not soft_labels
        return Sample(begin + tokens, targets, soft_labels=soft_labels, domain=self.domain, use_labels=use_labels)


class FixedRows:
    """Ready-made samples, such as a teacher's answers: so many a step, on average.

    `before` rows of each step are left to other states, which take them from the same order."""

    def __init__(self, samples: Sequence[Sample], *, rows: float, seed: int = 0, before: int = 0):
        self.samples, self.rows, self.before = samples, rows, before
        self.order = ShuffledOrder(len(samples), seed)

    def draw(self, student: Student, step: int) -> list[Sample]:
        return [self.samples[i] for i in self.order.of_step(step, self.before + self.rows, self.before)]


@dataclass(frozen=True)
class Prompt:
    text: str
    tokens: list[int]
    domain: str | None = None
    teacher_prompt: list[int] | None = None  # the whole prompt that a teacher in context reads; None: the same

    def with_reply(self, reply: list[int], **fields: Any) -> Sample:
        """Return a sample of the prompt and a reply to it, with the reply's tokens as targets."""
        fields |= {"prompt": self.text, "domain": self.domain, "teacher_prompt": self.teacher_prompt}
        return Sample.behind(self.tokens, reply, prompt_length=len(self.tokens), **fields)


class Rollouts:
    """Replies that the student samples itself, `group` of them to each prompt.

    After these, `after` prompts of each step are left to other states, which take them from the same order. `of_turns`
    as in `Sampling`: where no teacher says that the separator is the wrong end, it should not pass for one."""

    def __init__(
        self,
        prompts: Sequence[Prompt],
        engine: Engine,
        *,
        rows: int,
        group: int = 1,
        max_new_tokens: int = 256,
        seed: int = 0,
        after: int = 0,
        of_turns: bool = False,
    ):
        if rows % group:
            raise RecoverError(
                f"The {rows} rollouts of a step do not divide into groups of {group}. Choose a multiple of {group}."
            )
        self.prompts, self.engine, self.rows, self.group = prompts, engine, rows, group
        self.max_new_tokens, self.seed, self.after, self.of_turns = max_new_tokens, seed, after, of_turns
        self.order = ShuffledOrder(len(prompts), seed)

    def draw(self, student: Student, step: int) -> list[Sample]:
        self.engine.sync(student)
        count = self.rows // self.group
        drawn = enumerate(self.order.take(step * (count + self.after), count))
        chosen = [(group, self.prompts[i]) for group, (_, i) in drawn for _ in range(self.group)]
        seed = (self.seed * 1_000_003 + step * 1009) % 2**31
        sampling = Sampling(self.max_new_tokens, seed=seed, of_turns=self.of_turns)
        generations = self.engine.generate([p.tokens for _, p in chosen], sampling)
        samples = []
        for (group, prompt), generation in zip(chosen, generations, strict=True):
            tokens = generation.tokens
            if (size := student.vocabulary) is not None:  # up to the first token that the teacher lacks
                tokens = list(takewhile(lambda token: token < size, tokens))
            truncated = not generation.finished or len(tokens) < len(generation.tokens)
            logprobs = generation.logprobs[: len(tokens)]
            samples.append(prompt.with_reply(tokens, logprobs=logprobs, group=group, truncated=truncated))
        return samples


class Accepted:
    """Another draw, of which only the rows that are accepted are learned. They have a reward of 1, the others of 0.

    A draw without any that is accepted is repeated. What it draws then comes before step 0, where no step has its own:
    each prompt has its turn once an epoch. `most` rollouts without one that is accepted are no chance."""

    def __init__(self, states: States, accept: Callable[[Sample], bool], most: int = 256):
        self.states, self.accept, self.most = states, accept, most

    def draw(self, student: Student, step: int) -> list[Sample]:
        drawn = list(map(self._marked, self.states.draw(student, step)))
        retries = math.ceil(self.most / len(drawn)) - 1
        for attempt in range(1, retries + 1):
            if any(sample.target_count for sample in drawn):
                break
            drawn += map(self._marked, self.states.draw(student, -(step * retries + attempt)))
        if any(sample.target_count for sample in drawn):
            return drawn
        raise RecoverError(
            f"None of {len(drawn)} rollouts passed the checks of their prompts, so there is nothing to learn. "
            "Give easier prompts, or more rollouts a step (distill.rows)."
        )

    def _marked(self, sample: Sample) -> Sample:
        if self.accept(sample):
            return replace(sample, reward=1.0)
        return replace(sample, reward=0.0, targets=[False] * len(sample.tokens))


class CommonTokens:
    """Another draw, of which only tokens of the common vocabulary are targets: the head in use has no others."""

    def __init__(self, states: States, vocabulary: int | None):
        self.states, self.vocabulary = states, vocabulary

    def draw(self, student: Student, step: int) -> list[Sample]:
        samples, size = self.states.draw(student, step), self.vocabulary
        if size is None:
            return samples
        return [
            replace(s, targets=[target and token < size for token, target in zip(s.tokens, s.targets, strict=True)])
            for s in samples
        ]


class Mixture:
    """Concatenates a draw from each part; the parts' row counts set the proportions."""

    def __init__(self, *parts: States):
        self.parts = parts

    def draw(self, student: Student, step: int) -> list[Sample]:
        return [sample for part in self.parts for sample in part.draw(student, step)]


class TeacherContinuations:
    """The beginnings of rollouts, each continued by a teacher; only what the teacher wrote is learned.

    A beginning may be of any length, and never holds the token that ended the rollout. The teacher continues it for
    `min_tokens` to `max_tokens`; if it has a prompt of its own, it reads that."""

    def __init__(
        self, rollouts: States, writer: Engine, parameters: int, *, min_tokens: int, max_tokens: int, seed: int = 0
    ):
        self.rollouts, self.writer, self.parameters = rollouts, writer, parameters
        self.min_tokens, self.max_tokens, self.seed = min_tokens, max_tokens, seed

    def draw(self, student: Student, step: int) -> list[Sample]:
        rng = Random(f"{self.seed}/{step}")
        rows = [row for row in self.rollouts.draw(student, step) if row.target_count]
        cuts = [rng.randrange(row.target_count) for row in rows]
        lengths = [rng.randint(self.min_tokens, self.max_tokens) for _ in rows]
        writer_prompts = [_beginning(row.for_teacher, cut) for row, cut in zip(rows, cuts, strict=True)]
        sampling = Sampling(self.max_tokens, seed=rng.randrange(2**31), with_logprobs=False)
        written = [generation.tokens for generation in self.writer.generate(writer_prompts, sampling)]
        samples = []
        for row, cut, length, writer_prompt, tokens in zip(rows, cuts, lengths, writer_prompts, written, strict=True):
            beginning, reply = _beginning(row, cut), tokens[:length]
            flops = 2.0 * (student.parameters * len(row.tokens) + self.parameters * (len(writer_prompt) + len(tokens)))
            about = {"prompt": row.prompt, "domain": row.domain, "writing_flops": flops}
            samples.append(Sample.behind(beginning, reply, **about))
        return samples


def _beginning(row: Sample, cut: int) -> list[int]:
    """The prompt and the first `cut` tokens of the reply."""
    return row.tokens[: row.prompt_length + cut]
