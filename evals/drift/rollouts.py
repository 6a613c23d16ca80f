"""Rollouts of the current and the clean model on the same prompts, and training samples made of texts."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np

from evals.suites.knowledge import Question
from evals.suites.passage_recall import WINDOW
from recovery.engines import Engine, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.models.adapters import preserve_adapter_state
from recovery.models.chat_template import Chat
from recovery.models.students import Student
from recovery.samples import Sample


@dataclass(frozen=True)
class Rollout:
    prompt: str
    tokens: list[int]  # prompt and reply
    reply: list[int]

    def prefixes(self, count: int) -> list[list[int]]:
        """Return `count` prefixes of the reply, spread evenly over it; fewer if the reply is shorter."""
        ends = np.linspace(1, len(self.reply), min(count, len(self.reply))).astype(int)
        return [self.reply[:end] for end in ends]


class BaseUnderAdapter(Student):
    """The base model under another student's adapter: the same modules, used with the adapter disabled."""


@contextmanager
def adapter_disabled(student: Student) -> Iterator[None]:
    """Disable the adapter while a `BaseUnderAdapter` is in use. Does nothing for other students."""
    if not isinstance(student, BaseUnderAdapter):
        yield
        return
    with preserve_adapter_state(student.model), student.model.disable_adapter():
        yield


def transformers_engine(student: Student) -> AbstractContextManager[Engine]:
    """The default engine: the student's own modules."""
    return nullcontext(TransformersEngine(student))


def sample_rollouts(
    engine: Engine, student: Student, prompts: Sequence[str], max_new_tokens: int, seed: int
) -> list[Rollout]:
    prompt_ids = [student.chat.prompt(prompt) for prompt in prompts]
    generations = engine.generate(prompt_ids, Sampling(max_new_tokens, seed=seed))
    rows = zip(prompts, prompt_ids, generations, strict=True)
    return [Rollout(prompt, ids + g.tokens, g.tokens) for prompt, ids, g in rows]


def reply_sample(rollout: Rollout) -> Sample:
    """A sample with the reply's tokens as targets."""
    return _sample(rollout.tokens[: len(rollout.tokens) - len(rollout.reply)], rollout.reply)


def question_samples(chat: Chat, questions: Sequence[Question]) -> list[Sample]:
    """Samples of the questions as chat prompts, with the reference answers as targets."""
    return [_sample(chat.prompt(q.text), chat.tokenizer.encode(q.answer, add_special_tokens=False)) for q in questions]


def passage_samples(chat: Chat, passages: Sequence[str]) -> list[Sample]:
    """Samples of passages as documents, with every token after the first as a target."""
    start = [] if chat.document_bos is None else [chat.document_bos]
    rows = [[*start, *chat.tokenizer.encode(text, add_special_tokens=False)][:WINDOW] for text in passages]
    return [_sample(ids[:1], ids[1:]) for ids in rows if len(ids) > 1]


def _sample(context: list[int], targets: list[int]) -> Sample:
    return Sample(context + targets, [False] * len(context) + [True] * len(targets))
