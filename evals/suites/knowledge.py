"""Closed-book questions, asked through the chat template: graded replies and the likelihood of the reference answer.

Grading replies needs instruction following: a damaged model may know an answer and fail to state it. `answer_logprob`
is the mean log-likelihood per token of the reference as the reply; it still assumes the bare answer format, and it also
rises when the model only learns the documents' style.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.jsonl import Row, read_rows, text_field
from evals.results import Item, Metric, Result, item_key
from evals.subject import Answer, Subject, sum_logprobs, with_cost_meter
from evals.suites.answer_grading import f1, matches
from recovery.errors import RecoverError

MAX_NEW_TOKENS = 128


@dataclass(frozen=True)
class Question:
    text: str
    answer: str
    aliases: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        return (self.answer, *self.aliases)


Grade = Callable[[str, Question], bool]


def read_questions(path: str | Path) -> list[Question]:
    """Those with the same text are one, with the answers of all, so that no limit parts them."""
    return _merged([_parse_question(row) for row in read_rows(path)])


def matches_reference(reply: str, question: Question) -> bool:
    return any(matches(reply, reference, question.text) for reference in question.references)


def measure_questions(
    subject: Subject,
    questions: Sequence[Question],
    *,
    task: str = "closed_book",
    suite: str = "knowledge",
    data: str,
    grade: Grade = matches_reference,
    max_new_tokens: int = MAX_NEW_TOKENS,
) -> Result:
    """Measure the subject on the questions. Those with the same text are one item: each of their answers is right."""
    subject, cost = with_cost_meter(subject)
    questions = _merged(questions)
    answers = subject.answer([question.text for question in questions], max_new_tokens)
    likelihoods = answer_logprobs(subject, questions)
    items = [_item(*row, grade) for row in zip(questions, answers, likelihoods, strict=True)]
    metrics = {
        "match": Metric.from_passes([item.passed for item in items]),
        "f1": Metric.from_values([item.verdicts["f1"] for item in items]),
        "answer_logprob": Metric.from_values(likelihoods),
        "finished": Metric.from_passes([answer.finished for answer in answers]),
    }
    return Result(task, suite, data, metrics, items, {"max_new_tokens": max_new_tokens}, *cost())


def _merged(questions: Sequence[Question]) -> list[Question]:
    merged: dict[str, Question] = {}
    for question in questions:
        answer, *aliases = (*merged.get(question.text, question).references, *question.references)
        merged[question.text] = Question(question.text, answer, tuple(dict.fromkeys(a for a in aliases if a != answer)))
    return list(merged.values())


def answer_logprobs(subject: Subject, questions: Sequence[Question]) -> list[float]:
    """Return the mean log-likelihood per token of each reference as the reply.

    The end-of-turn token is left out: to stop there is instruction following, not knowledge."""
    prompts = [subject.chat.prompt(question.text) for question in questions]
    answers = [subject.encode(question.answer) for question in questions]
    scores = subject.engine.logprobs([prompt + answer for prompt, answer in zip(prompts, answers, strict=True)])
    return [sum_logprobs(values[-len(answer) :]) / len(answer) for values, answer in zip(scores, answers, strict=True)]


def _item(question: Question, answer: Answer, likelihood: float, grade: Grade) -> Item:
    overlap = max(f1(answer.text, reference) for reference in question.references)
    verdicts = {
        "reference": question.answer,
        "f1": overlap,
        "answer_logprob": likelihood,
        "finished": answer.finished,
    }
    return Item(item_key(question.text), question.text, answer.text, grade(answer.text, question), verdicts)


def _parse_question(row: Row) -> Question:
    location, fields = row
    aliases = fields.get("aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(alias, str) and alias.strip() for alias in aliases):
        raise RecoverError(f'{location} has no valid "aliases". Write a list of texts.')
    return Question(text_field(row, "question"), text_field(row, "answer"), tuple(aliases))
