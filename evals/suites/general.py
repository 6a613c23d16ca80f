"""General knowledge: built-in multiple-choice questions, which show what a model still knows of what it knew before.

The facts are in `general_facts.txt`. Each question goes through the chat template, the reply begins as the phrasing
says ("The capital of France is"), and the likeliest of four continuations is the model's answer. So the form and the
length of replies have no influence. Chance level is one quarter. This is no public benchmark: its numbers
compare checkpoints of one model with each other.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path

from evals.results import Item, Metric, Result, item_key
from evals.splits import Split, select_items
from evals.subject import Subject, encode_pair, sum_logprobs, with_cost_meter

FACTS = Path(__file__).with_name("general_facts.txt")
DISTRACTORS = 3  # wrong choices per question


@dataclass(frozen=True)
class GeneralQuestion:
    """A question with one right answer among its choices."""

    kind: str
    text: str
    reply_start: str
    answer: str
    choices: tuple[str, ...]  # the answer and the distractors, in an order that does not depend on which is right

    @property
    def key(self) -> str:
        return item_key(self.text)


@dataclass(frozen=True)
class _Fact:
    text: str
    reply_start: str
    answer: str
    also_right: tuple[str, ...]
    wrong: tuple[str, ...]  # empty: choose from the answers of the kind


@cache
def general_questions() -> tuple[GeneralQuestion, ...]:
    """Return all questions, in an order that mixes the kinds, so that the first ones are a sample of all."""
    questions = [question for kind, lines in _sections().items() for question in _questions(kind, lines)]
    return tuple(sorted(questions, key=lambda question: question.key))


def measure_general(subject: Subject, limit: int | None = None, split: Split = "all") -> Result:
    """Measure `match`, the share of questions whose right answer is the likeliest, and the same for each kind."""
    subject, cost = with_cost_meter(subject)
    questions = select_items(general_questions(), lambda question: question.key, split, limit)
    scores = _choice_logprobs(subject, questions)
    items = [_item(question, row) for question, row in zip(questions, scores, strict=True)]
    passes: dict[str, list[bool]] = defaultdict(list)
    for item in items:
        passes[item.verdicts["kind"]].append(item.passed)
    metrics = {"match": Metric.from_passes([item.passed for item in items])}
    metrics |= {f"match/{kind}": Metric.from_passes(values) for kind, values in sorted(passes.items())}
    return Result("general", "retention", "general", metrics, items, {}, *cost())


def _choice_logprobs(subject: Subject, questions: Sequence[GeneralQuestion]) -> list[list[float]]:
    """Return the log-likelihood of each choice of each question, as the end of the reply's sentence.

    The full stop is scored too: without it, "5" could never be less likely than "54", which begins with it."""
    contexts: list[list[int]] = []
    continuations: list[list[int]] = []
    for question in questions:
        prompt = subject.chat.prompt(question.text)
        for choice in question.choices:
            sentence_end = choice.removesuffix(".") + "."
            context, continuation = encode_pair(subject.encode, f"{question.reply_start} ", sentence_end)
            contexts.append([*prompt, *context])
            continuations.append(continuation)
    sums = map(sum_logprobs, subject.engine.continuation_logprobs(contexts, continuations))
    return [list(islice(sums, len(question.choices))) for question in questions]


def _item(question: GeneralQuestion, logprobs: list[float]) -> Item:
    preferred = question.choices[logprobs.index(max(logprobs))]
    choices = dict(zip(question.choices, logprobs, strict=True))
    verdicts = {"kind": question.kind, "reference": question.answer, "choices": choices}
    return Item(question.key, question.text, preferred, preferred == question.answer, verdicts)


def _sections() -> dict[str, list[str]]:
    """Return the lines of each kind."""
    sections: dict[str, list[str]] = {}
    for line in FACTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            lines = sections[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            lines.append(line)
    return sections


def _questions(kind: str, lines: list[str]) -> Iterator[GeneralQuestion]:
    phrasings = [line for line in lines if " = " not in line]
    facts = [_parse(line, phrasings) for line in lines if " = " in line]
    answers = sorted({fact.answer for fact in facts})
    for fact in facts:
        wrong = fact.wrong or [answer for answer in answers if answer not in (fact.answer, *fact.also_right)]
        distractors = sorted(wrong, key=partial(_hash, fact.text))[:DISTRACTORS]
        choices = sorted([fact.answer, *distractors], key=partial(_hash, "order", fact.text))
        yield GeneralQuestion(kind, fact.text, fact.reply_start, fact.answer, tuple(choices))


def _parse(line: str, phrasings: list[str]) -> _Fact:
    subject, _, rest = line.rpartition(" = ")
    rest, _, wrong = rest.partition(" | ")
    answer, _, also_right = rest.partition(" ~ ")
    phrasing = subject if " / " in subject else phrasings[_hash(subject) % len(phrasings)].replace("{}", subject)
    text, _, reply_start = phrasing.partition(" / ")
    return _Fact(text, reply_start, answer, _split(also_right), _split(wrong))


def _split(answers: str) -> tuple[str, ...]:
    return tuple(answers.split(", ")) if answers else ()


def _hash(*texts: str) -> int:
    """A number that is the same in every process, so that the questions and their choices never change."""
    return int.from_bytes(hashlib.sha256("/".join(texts).encode()).digest()[:8])
