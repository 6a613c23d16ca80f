"""What a reading looks at: rows whose next-token distributions are compared, prompts with checks, and known facts.

Of the clean model only the likeliest tokens of each position are kept, so no second model is in memory.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy
import torch
from torch import Tensor

from evals.results import Item
from evals.subject import Subject
from evals.suites import lab
from evals.suites.config import load_suites
from evals.suites.general import general_questions
from evals.suites.instruction_following import Prompt, judge
from evals.token_boundaries import encode_pair
from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.lab import own_world
from recovery.models.students import Student
from recovery.samples import Batch, Sample

TOP = 32  # tokens of the clean model's distribution that are kept at each position; the rest is one outcome
MAX_ROW = 512  # tokens
CHUNK = 128  # targets whose distributions are in memory together


class WatchedModel(Student):
    """The model in another trainer, which keeps its dropout."""

    def __post_init__(self) -> None:
        pass


@dataclass
class Rows:
    """Token rows, and what the clean model expected at each target."""

    samples: list[Sample]
    tokens: list[Tensor] = field(default_factory=list)  # by chunk of targets: the likeliest tokens [targets, TOP]
    logprobs: list[Tensor] = field(default_factory=list)

    @property
    def targets(self) -> int:
        return sum(sample.target_count for sample in self.samples)

    @classmethod
    def of_clean(cls, model: Student, samples: Sequence[Sample]) -> "Rows":
        rows = cls([s for s in samples if s.target_count])
        for logprobs in _distributions(model, rows.samples):
            values, tokens = logprobs.topk(min(TOP, logprobs.shape[-1]), dim=-1)
            rows.logprobs.append(values.cpu())
            rows.tokens.append(tokens.cpu())
        return rows

    def kl(self, model: Student) -> float:
        """KL(clean ‖ now) per target, with all but the likeliest tokens as one outcome: never more than the whole."""
        total = 0.0
        for logprobs, tokens, clean in zip(
            _distributions(model, self.samples), self.tokens, self.logprobs, strict=True
        ):
            now = logprobs.gather(-1, tokens.to(logprobs.device)).cpu()
            p, q = clean.exp(), now.exp()
            rest_p, rest_q = (1 - p.sum(-1)).clamp(min=1e-6), (1 - q.sum(-1)).clamp(min=1e-6)
            kl = (p * (clean - now)).sum(-1) + rest_p * (rest_p.log() - rest_q.log())
            total += float(kl.sum())
        return total / max(1, self.targets)


def training_rows(dataloader: Any, count: int) -> list[Sample]:
    """Some rows of the trainer's own data, as its collator makes them; none where they have no token ids."""
    try:
        data = dataloader.dataset
        chosen = Random(0).sample(range(len(data)), min(count, len(data)))
        batch = dataloader.collate_fn([data[i] for i in chosen])
    except (AttributeError, TypeError, KeyError, ValueError):
        return []  # a stream, or rows that only the trainer itself can collate
    if not isinstance(batch, Mapping):  # GRPO's rows are prompts
        return []
    names = [name for name in batch if name.endswith("input_ids")]
    samples = []
    for name in names[:1]:
        masks = batch.get(name.replace("input_ids", "attention_mask"), torch.ones_like(batch[name]))
        for tokens, mask in zip(batch[name], masks, strict=True):
            ids = tokens[mask.bool()][:MAX_ROW].tolist()
            samples.append(Sample(ids, [False] + [True] * (len(ids) - 1)))
    return [s for s in samples if s.tokens]


def prompt_rows(model: Student, count: int) -> list[Sample]:
    rows = [model.chat.prompt(prompt.text) for prompt in instruction_probes(count)]
    return [Sample(row, [False] + [True] * (len(row) - 1)) for row in rows]


def reply_rows(model: Student, prompts: Sequence[Prompt], max_new_tokens: int) -> list[Sample]:
    """The prompts with the replies that the clean model finds likeliest."""
    rows = [model.chat.prompt(prompt.text) for prompt in prompts]
    sampling = Sampling(max_new_tokens, temperature=0.0, with_logprobs=False)
    replies = TransformersEngine(model).generate(rows, sampling)
    return [Sample([*row, *reply.tokens], [False] * len(row) + [True] * len(reply.tokens))
            for row, reply in zip(rows, replies, strict=True)]  # fmt: skip


def instruction_probes(count: int) -> list[Prompt]:
    return lab.instruction_prompts(count, natural=True)


def answer(model: Student, prompts: Sequence[Prompt], max_new_tokens: int) -> list[Item]:
    subject = Subject(TransformersEngine(model), model.chat)
    answers = subject.answer([prompt.text for prompt in prompts], max_new_tokens)
    return [judge(prompt, text) for prompt, text in zip(prompts, answers, strict=True)]


def known_facts(model: Student, base: str, count: int) -> list[Sample]:
    """Questions on what the base knew before, with the right answers as targets."""
    if "lab" in load_suites(base).get("retention", ""):
        pool = [(q.question, "", q.answer) for q in Random(0).sample(own_world().questions(), count)]
    else:
        pool = [(q.text, q.reply_start + " ", q.answer) for q in general_questions()[:count]]
    subject, samples = Subject(TransformersEngine(model), model.chat), []
    for text, start, right in pool:
        context, target = encode_pair(subject.encode, start, right) if start else ([], subject.encode(right))
        before = [*model.chat.prompt(text), *context]
        samples.append(Sample([*before, *target], [False] * len(before) + [True] * len(target)))
    return samples


def answer_logprobs(model: Student, samples: Sequence[Sample]) -> list[float]:
    """The mean log-prob of the targets of each row."""
    scores = TransformersEngine(model).logprobs([s.tokens for s in samples])
    return [
        math.fsum(v for v, target in zip(row, s.targets[1:], strict=True) if target) / s.target_count
        for row, s in zip(scores, samples, strict=True)
    ]


@torch.no_grad()
def _distributions(model: Student, samples: Sequence[Sample]) -> Iterator[Tensor]:
    """The log-probs [targets, vocabulary] at the targets of every row, a few targets at a time."""
    for sample in samples:
        batch = Batch.collate([sample], model.chat.pad_id, model.device)
        for states in torch.split(model.hidden(batch), CHUNK):
            yield model.head.logits(states).float().log_softmax(-1)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode, with the modes of all modules and all random states restored afterwards."""
    training = [module for module in model.modules() if module.training]
    cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=cuda):
        try:
            model.eval()
            yield
        finally:
            for module in training:
                module.training = True
            random.setstate(python_state)
            numpy.random.set_state(numpy_state)
