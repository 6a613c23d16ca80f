"""Closed-book questions, asked through the chat template: graded replies and the likelihood of the reference answer.

Grading replies needs instruction following: a damaged model may know an answer and fail to state it. Two more metrics
separate the two. `answer_logprob` is the mean log-likelihood per token of the reference as the reply; it still assumes
the bare answer format, and it also rises when the model only learns the documents' style. `preferred` asks, at the
position where the model's own reply names an answer, whether the reference is likelier than each of three distractors
(other answers of the same kind, without the one the reply gave). Both effects cancel there: training on documents
raises the likelihood of every answer in them, and a model that lost the answer format finds all of them unlikely.
Chance level is one quarter. A question whose answer has fewer than four others beside it is left out: there, what the
reply excludes would decide how many distractors are left.
"""

import heapq
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.jsonl import Row, read_rows, text_field
from evals.results import Item, Metric, Result, item_key
from evals.subject import Answer, Subject, encode_pair, sum_logprobs, with_cost_meter
from evals.suites.answer_grading import f1, matches, normalized_words
from recovery.errors import RecoverError

MAX_NEW_TOKENS = 128
DISTRACTORS = 3  # wrong answers of the same kind for each question
MAX_REPLY_CHARS = 2000  # of a reply, searched for an answer


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
    return [_parse_question(row) for row in read_rows(path)]


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
    preferred = preferences(subject, questions, [answer.text for answer in answers])
    items = [_item(*row, grade) for row in zip(questions, answers, likelihoods, preferred, strict=True)]
    decided = [preference for preference in preferred if preference is not None]
    metrics = {
        "match": Metric.from_passes([item.passed for item in items]),
        "f1": Metric.from_values([item.verdicts["f1"] for item in items]),
        "answer_logprob": Metric.from_values(likelihoods),
        "finished": Metric.from_passes([answer.finished for answer in answers]),
    }
    metrics |= {"preferred": Metric.from_passes(decided)} if decided else {}
    settings = {"max_new_tokens": max_new_tokens, "thinking": subject.thinking}
    return Result(task, suite, data, metrics, items, settings, *cost())


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


def preferences(subject: Subject, questions: Sequence[Question], replies: Sequence[str]) -> list[bool | None]:
    """Return for each question whether the reference is likelier than every distractor where the reply names an answer.

    None if the question has no distractor."""
    pool = Distractors([(question.text, question.references) for question in questions])
    distractors = [pool.select(i, reply) for i, reply in enumerate(replies)]
    rows: list[list[int]] = []
    lengths: list[int] = []
    for i, (question, others) in enumerate(zip(questions, distractors, strict=True)):
        prefix = pool.prefix_before_answer(i, replies[i])
        for answer in (question.answer, *others) if others else ():
            context, continuation = encode_pair(subject.encode, prefix, answer)
            rows.append([*subject.chat.prompt(question.text), *context, *continuation])
            lengths.append(len(continuation))
    scores = zip(subject.engine.logprobs(rows), lengths, strict=True)
    means = iter([sum_logprobs(values[-length:]) / length for values, length in scores])
    return [next(means) > max([next(means) for _ in others]) if others else None for others in distractors]


def _item(question: Question, answer: Answer, likelihood: float, preferred: bool | None, grade: Grade) -> Item:
    overlap = max(f1(answer.text, reference) for reference in question.references)
    verdicts = {
        "reference": question.answer,
        "f1": overlap,
        "answer_logprob": likelihood,
        "finished": answer.finished,
        "preferred": preferred,
    }
    return Item(item_key(question.text), question.text, answer.text, grade(answer.text, question), verdicts)


def _parse_question(row: Row) -> Question:
    location, fields = row
    aliases = fields.get("aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(alias, str) and alias.strip() for alias in aliases):
        raise RecoverError(f'{location} has no valid "aliases". Write a list of texts.')
    return Question(text_field(row, "question"), text_field(row, "answer"), tuple(aliases))


class Distractors:
    """The answers to a set of questions, each (question, references)."""

    def __init__(self, questions: Sequence[tuple[str, Sequence[str]]]):
        self.questions = questions
        self._question_words = [frozenset(normalized_words(question)) for question, _ in questions]
        self._answers = [_normalized(references[0]) for _, references in questions]
        answers = sorted({reference for _, references in questions for reference in references}, key=len, reverse=True)
        self._any_answer = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, answers))})(?!\w)", re.IGNORECASE)

    def prefix_before_answer(self, i: int, reply: str) -> str:
        """Return the reply up to the first answer (to any question) that it names; empty if it names none."""
        question = self.questions[i][0].casefold()
        answers = (m for m in self._any_answer.finditer(reply[:MAX_REPLY_CHARS]) if m[0].casefold() not in question)
        first = next(answers, None)
        return reply[: first.start()] if first else ""

    def select(self, i: int, reply: str) -> list[str]:
        """Return up to three answers of the most similar questions that are neither right nor in the reply; none where
        there are fewer than four that are not right."""
        named = {_normalized(m[0]) for m in self._any_answer.finditer(reply[:MAX_REPLY_CHARS])}
        right = {_normalized(reference) for reference in self.questions[i][1]}
        similar = self._most_similar(i, 16 * DISTRACTORS)  # more than needed, as equal answers are dropped
        wrong: dict[str, str] = {}  # by their normal form, in the order of the most similar question of each
        for j in similar:
            if self._answers[j] not in right:
                wrong.setdefault(self._answers[j], self.questions[j][1][0])
        if len(wrong) <= DISTRACTORS:
            return []
        return [text for answer, text in wrong.items() if answer not in named][:DISTRACTORS]

    def _most_similar(self, i: int, count: int) -> list[int]:
        """Indices of the questions with the largest Jaccard similarity."""
        words = self._question_words[i]
        others = (j for j in range(len(self.questions)) if j != i)
        return heapq.nlargest(
            count,
            others,
            key=lambda j: len(words & self._question_words[j]) / max(len(words | self._question_words[j]), 1),
        )


def _normalized(answer: str) -> str:
    return " ".join(normalized_words(answer))
