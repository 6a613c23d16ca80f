"""Rows of tokens on which the trained model is compared with the clean one, by forward passes only.

Of the clean model only the likeliest tokens of each position are kept, so no second model is in memory.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy
import torch
from torch import Tensor

from evals.subject import Subject, encode_pair
from evals.suites.config import load_suites
from evals.suites.general import general_questions
from recovery.engines.transformers import TransformersEngine
from recovery.lab import instruction_tasks, own_world
from recovery.models.adapters import preserve_adapter_state
from recovery.models.students import Student
from recovery.samples import Batch, Sample

TOP = 32  # tokens of the clean model's distribution that are kept at each position; the rest is one outcome
MAX_ROW, MAX_ANSWER = 256, 48  # tokens
CHUNK = 128  # targets whose distributions are in memory together


@dataclass
class WatchedModel(Student):
    """The model in another trainer, which keeps its dropout and computes in its own precision."""

    precision: Callable[[], AbstractContextManager[Any]] = nullcontext

    def __post_init__(self) -> None:
        pass

    def hidden(self, batch: Batch) -> Tensor:
        with self.precision():
            states = super().hidden(batch)
        return states.to(self.head.weight.dtype)


@dataclass
class Rows:
    """Token rows of one forward pass, and what the clean model expected at each target."""

    samples: list[Sample]
    tokens: list[Tensor] = field(default_factory=list)  # by chunk of targets: the likeliest tokens [targets, TOP]
    logprobs: list[Tensor] = field(default_factory=list)

    @classmethod
    def of_clean(cls, model: Student, samples: Sequence[Sample]) -> "Rows":
        rows = cls([s for s in samples if s.target_count])
        for logprobs in _distributions(model, rows.samples):
            values, tokens = logprobs.topk(min(TOP, logprobs.shape[-1]), dim=-1)
            rows.logprobs.append(values.cpu())
            rows.tokens.append(tokens.cpu())
        return rows

    @property
    def targets(self) -> int:
        return sum(sample.target_count for sample in self.samples)

    @property
    def entropy(self) -> float:
        """Of the clean model, per target, with all but the likeliest tokens as one outcome."""
        return sum(_cross_entropy(clean, clean) for clean in self.logprobs) / self.targets

    def kl(self, model: Student) -> float:
        """KL(clean ‖ now) per target, with all but the likeliest tokens as one outcome: never more than the whole."""
        total = 0.0
        for now, tokens, clean in zip(_distributions(model, self.samples), self.tokens, self.logprobs, strict=True):
            now = now.gather(-1, tokens.to(now.device)).cpu()
            total += _cross_entropy(clean, now) - _cross_entropy(clean, clean)
        return total / self.targets


def _cross_entropy(clean: Tensor, now: Tensor) -> float:
    """Summed over targets; the tokens that are not among the likeliest are one outcome."""
    rest, rest_now = ((1 - logprobs.exp().sum(-1)).clamp(min=1e-6) for logprobs in (clean, now))
    return -float((clean.exp() * now).sum() + (rest * rest_now.log()).sum())


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
            ids = tokens[mask.bool()].tolist()
            samples.append(_sample(ids[:1], ids[1:]))
    return [s for s in samples if s.tokens]


def beginning(sample: Sample) -> Sample:
    return Sample(sample.tokens[:MAX_ROW], sample.targets[:MAX_ROW])


def instruction_rows(model: Student, count: int) -> list[Sample]:
    """Instructions and answers that follow them: ready-made, since writing replies would take most of the time."""
    chat, rows = model.chat, []
    ending = min(chat.eos_ids)  # any of them: what follows it is not compared
    for task in instruction_tasks(0, count, "natural"):
        answer = [*chat.tokenizer.encode(task.answer, add_special_tokens=False), ending]
        rows.append(_sample(chat.prompt(task.prompt), answer[:MAX_ANSWER]))
    return rows


def known_facts(model: Student, count: int) -> list[Sample]:
    """Questions on what the base knew before, with the right answers as targets."""
    if "lab" in load_suites(model.path).get("retention", ""):
        pool = [(q.question, "", q.answer) for q in Random(0).sample(own_world().questions(), count)]
    else:
        pool = [(q.text, q.reply_start + " ", q.answer) for q in general_questions()[:count]]
    subject, samples = Subject(TransformersEngine(model), model.chat), []
    for text, start, right in pool:
        context, target = encode_pair(subject.encode, start, right) if start else ([], subject.encode(right))
        samples.append(_sample([*model.chat.prompt(text), *context], target))
    return samples


def answer_logprobs(model: Student, samples: Sequence[Sample]) -> float:
    """The mean over rows of the mean log-prob of their targets."""
    scores = TransformersEngine(model).logprobs([s.tokens for s in samples])
    sums = [math.fsum(v for v, target in zip(row, s.targets[1:], strict=True) if target) / s.target_count
            for row, s in zip(scores, samples, strict=True)]  # fmt: skip
    return math.fsum(sums) / len(sums)


def _sample(before: list[int], targets: list[int]) -> Sample:
    return Sample([*before, *targets], [False] * len(before) + [True] * len(targets))


@torch.no_grad()
def _distributions(model: Student, samples: Sequence[Sample]) -> Iterator[Tensor]:
    """The log-probs [targets, vocabulary] at all targets, some at a time."""
    if samples:
        states = model.hidden(Batch.collate(list(samples), model.chat.pad_id, model.device))
        for chunk in torch.split(states, CHUNK):
            yield model.head.logits(chunk).float().log_softmax(-1)


@contextmanager
def clean_model(model: Student) -> Iterator[None]:
    """The model without its adapter; with full weights it is clean before the first step only."""
    with ExitStack() as stack:
        stack.enter_context(evaluating(model.model))
        if model.has_adapter:
            stack.enter_context(preserve_adapter_state(model.model))
            stack.enter_context(model.model.disable_adapter())
        yield


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
