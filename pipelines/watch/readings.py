"""What is read of a model while it trains: how far it has moved from the clean model, and what it no longer follows.

At a high learning rate a model loses instruction following within a few steps, between two readings. So a few answers
are checked after as many steps as the budget pays for, the first ones above all; if the KL on them has risen, a reading
of all is taken at once. Since the KL of such a training grows by a factor at each step, two readings also tell
where it will be soon.
"""

import copy
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from inspect import ismethod
from random import Random
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from evals.results import Item
from evals.stats.paired_comparison import PairedTest, paired_test
from evals.subject import Subject, encode_pair
from evals.suites.config import load_suites
from evals.suites.general import general_questions
from evals.suites.instruction_following import Prompt, judge
from evals.suites.suite_measurement import suite_tasks
from recovery.engines.transformers import TransformersEngine
from recovery.lab import instruction_tasks, own_world
from recovery.models.adapters import preserve_adapter_state
from recovery.models.students import Student
from recovery.samples import Batch, Sample
from recovery.telemetry import repetition

TRAINING_ROWS, INSTRUCTIONS, FACTS = 4, 16, 16
# The KL at which a loss of three points is likely, as a share of the clean model's entropy on the same tokens.
# Measured: `python -m benchmarks.forgetting_warnings` (docs/repair.md).
LIMIT_PER_ENTROPY = 0.09
MIN_ENTROPY = 0.05  # nats per token
FORECAST_FROM, MIN_GROWTH = 0.05, 0.01  # shares of the limit: a smaller KL is no ground for a forecast, or is no growth
FORECAST_STEPS = 5
GROUPS = 4  # of the answers; a spot check is of one group
RISE = 0.07  # of what is left up to the limit, in one group: then a reading is taken
ALPHA = 0.05  # of a certain loss without one, over all times together
NEW_TOKENS, TRIAL_TOKENS = 160, 8
REPEATS = 0.2  # a larger share of a text's pieces that occurred in it before: it repeats itself
TOP = 32  # tokens of the clean model's distribution that are kept at each position; the rest is one outcome
MAX_ROW, MAX_ANSWER = 256, 48  # tokens
CHUNK = 128  # targets whose distributions are in memory together


class RowReadings:
    """The clean model's expectations, computed once, so that it need not stay in memory; and readings against them."""

    def __init__(self, model: Student, training: Sequence[Sample], answers: Sequence[Sample], facts: list[Sample]):
        with clean_model(model):
            self.training = Rows.of_clean(model, training)
            self.answers = [Rows.of_clean(model, answers[start::GROUPS]) for start in range(GROUPS)]
            self.facts, self.clean_facts = facts, answer_logprobs(model, facts)
        self.limit = LIMIT_PER_ENTROPY * max(MIN_ENTROPY, self._mean([group.entropy for group in self.answers]))
        self.begin()

    def begin(self) -> None:
        self.step, self.mean, self.kls = 0, 0.0, [0.0] * len(self.answers)  # in the last reading
        self.spot_checks = 0

    def read(self, model: Student, step: int) -> tuple[dict[str, float], str]:
        values = {}
        with evaluating(model.model):
            if self.training.samples:
                values["kl_training"] = self.training.kl(model)
            self.kls = [group.kl(model) for group in self.answers]
            known = answer_logprobs(model, self.facts) - self.clean_facts
        mean = self._mean(self.kls)
        return values | {"kl_instructions": mean, "kl_limit": self.limit, "known": known}, self.finding(step, mean)

    def finding(self, step: int, mean: float) -> str:
        expected = self._forecast(step, mean)
        self.step, self.mean = step, mean
        if not mean < self.limit:  # also if it is not a number
            return f"{mean:.2g} per token ({self.limit:.2g} is the limit)"
        if expected >= max(self.limit, 2 * mean):  # just below the limit a slow rise is none
            return f"{mean:.2g} per token and will soon pass {self.limit:.2g} (the limit) at this growth"
        return ""

    def has_risen(self, model: Student) -> bool:
        """Whether the KL on the next group of answers has risen since the last reading."""
        number = self.spot_checks % len(self.answers)
        self.spot_checks += 1
        with evaluating(model.model):
            rise = self.answers[number].kl(model) - self.kls[number]
        return not rise < RISE * (self.limit - self.mean)

    def _forecast(self, step: int, mean: float) -> float:
        """The KL a few steps from here, if it goes on growing by the same factor at each step. A first reading is no
        ground for one: an adapter that was trained before differs from the start."""
        if not self.step or step <= self.step or mean < FORECAST_FROM * self.limit:
            return mean
        growth = max(0.0, math.log(mean / max(self.mean, MIN_GROWTH * self.limit)))
        return mean * math.exp(growth * FORECAST_STEPS / (step - self.step))

    def _mean(self, values: Sequence[float]) -> float:
        """Over all targets, from the values of the groups."""
        targets = [group.targets for group in self.answers]
        return math.fsum(value * n for value, n in zip(values, targets, strict=True)) / sum(targets)


@dataclass
class InstructionReadings:
    """Checked instructions, asked again and again: the loss that is certain at all times together."""

    prompts: list[Prompt]
    clean: dict[str, bool] = field(default_factory=dict)  # whether the clean model follows each
    cut: set[str] = field(default_factory=set)  # those to which its replies are cut
    rounds: int = 0

    def read_clean(self, model: Student) -> None:
        with clean_model(model):
            items = self._answer(model, NEW_TOKENS)
        self.clean = {item.key: item.passed for item in items}
        self.cut = {item.key for item in items if not item.verdicts["finished"]}

    def read(self, model: Student) -> PairedTest | None:
        """None where nothing can be told. A model that has learned to write, or to think, at length may follow the
        instructions behind the end of a cut reply, which counts as unchanged; one whose replies repeat themselves has
        lost their end."""
        with evaluating(model.model):
            items = self._answer(model, NEW_TOKENS)
        judged = [
            i for i in items if i.verdicts["finished"] or i.key in self.cut or repetition(i.answer.split()) > REPEATS
        ]
        self.rounds += 1
        if not judged:
            return None
        passed = self.clean | {item.key: item.passed for item in judged}
        # 1/2 + 1/6 + 1/12 + … is 1: all times together claim a loss without one with the probability ALPHA.
        return paired_test(self.clean, passed, 1 - ALPHA / (self.rounds * (self.rounds + 1)))

    def expected_seconds(self, model: Student) -> float:
        """Measured on the first tokens of the replies, so rather too much than too little."""
        with evaluating(model.model):
            self._answer(model, 1)  # the first call is slower
            started_at = time.monotonic()
            self._answer(model, TRIAL_TOKENS)
        return (time.monotonic() - started_at) * NEW_TOKENS / TRIAL_TOKENS

    def _answer(self, model: Student, max_new_tokens: int) -> list[Item]:
        subject = Subject(TransformersEngine(model), model.chat)
        answers = subject.answer([prompt.text for prompt in self.prompts], max_new_tokens)
        return [judge(prompt, text) for prompt, text in zip(self.prompts, answers, strict=True)]


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
        data, collate = dataloader.dataset, _copy_of(dataloader.collate_fn)
        if isinstance(data, IterableDataset):  # which may tell how many rows it has
            return []
        chosen = Random(0).sample(range(len(data)), min(count, len(data)))
        batches = [collate([data[i]]) for i in chosen]  # together they may become one long row
    except (AttributeError, TypeError, KeyError, ValueError):
        return []  # a stream, or rows that only the trainer itself can collate
    samples = []
    for batch in batches:
        if not isinstance(batch, Mapping):  # GRPO's rows are prompts
            return []
        for name in [name for name in batch if name.endswith("input_ids")][:1]:
            masks = batch.get(name.replace("input_ids", "attention_mask"), torch.ones_like(batch[name]))
            for tokens, mask in zip(batch[name], masks, strict=True):
                ids = tokens[mask.bool()].tolist()
                samples.append(Sample.behind(ids[:1], ids[1:]))
    return [s for s in samples if s.tokens]


def _copy_of(collator: Any) -> Any:
    """So that no random numbers of its own are used up. A model that it holds is not copied."""
    if ismethod(collator):  # of something larger
        return collator
    holders = (collator, getattr(collator, "data_collator", None))
    parts = [part for holder in holders for part in getattr(holder, "__dict__", {}).values()]
    return copy.deepcopy(collator, {id(part): part for part in parts if isinstance(part, torch.nn.Module)})


def beginning(sample: Sample) -> Sample:
    return Sample(sample.tokens[:MAX_ROW], sample.targets[:MAX_ROW])


def instruction_rows(model: Student, count: int) -> list[Sample]:
    """Instructions and answers that follow them: ready-made, since writing replies would take most of the time."""
    chat, rows = model.chat, []
    ending = min(chat.eos_ids)  # any of them: what follows it is not compared
    for task in instruction_tasks(0, count, "natural"):
        answer = [*chat.tokenizer.encode(task.answer, add_special_tokens=False), ending]
        rows.append(Sample.behind(chat.prompt(task.prompt), answer[:MAX_ANSWER]))
    return rows


def known_facts(model: Student, count: int) -> list[Sample]:
    """Questions on what the base knew before, with the right answers as targets."""
    if "lab" in suite_tasks("retention", load_suites(model.path)):
        pool = [(q.question, "", q.answer) for q in Random(0).sample(own_world().questions(), count)]
    else:
        pool = [(q.text, q.reply_start + " ", q.answer) for q in general_questions()[:count]]
    subject, samples = Subject(TransformersEngine(model), model.chat), []
    for text, start, right in pool:
        context, target = encode_pair(subject.encode, start, right) if start else ([], subject.encode(right))
        samples.append(Sample.behind([*model.chat.prompt(text), *context], target))
    return samples


def answer_logprobs(model: Student, samples: Sequence[Sample]) -> float:
    """The mean over rows of the mean log-prob of their targets."""
    scores = TransformersEngine(model).logprobs([s.tokens for s in samples])
    sums = [math.fsum(v for v, target in zip(row, s.targets[1:], strict=True) if target) / s.target_count
            for row, s in zip(scores, samples, strict=True)]  # fmt: skip
    return math.fsum(sums) / len(sums)


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
