"""What a model knows without the book: questions asked through the chat template, and what it would have said.

Answers are read through manners: a damaged model may know and not be able to say. So beside the graded replies stands
`answer_logprob`, how likely the reference answer is as the reply, a token. That still takes the bare form of an answer
for granted, and rises with the style of the documents alone. So a third, `preferred`: in the place where the model's
own reply names an answer, is the right one likelier than each of three others of its kind (and other than the one it
gave)? Chance is a quarter.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.cost_meter import metered
from evals.jsonl import Row, read_rows, text_field
from evals.results import Item, Metric, Result, key_of
from evals.subject import Answer, Subject
from evals.suites.answer_grading import f1, matches
from evals.suites.distractors import Rivals
from evals.token_boundaries import cut
from recovery.errors import RecoverError

MAX_NEW_TOKENS = 128
LEAST_LOGPROB = -100.0  # a token ruled out altogether (or NaN) must not swallow the mean of all others


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
    return [_question(row) for row in read_rows(path)]


def by_match(reply: str, question: Question) -> bool:
    return any(matches(reply, reference, question.text) for reference in question.references)


def ask(
    subject: Subject,
    questions: Sequence[Question],
    *,
    task: str = "closed_book",
    suite: str = "knowledge",
    data: str,
    grade: Grade = by_match,
    max_new_tokens: int = MAX_NEW_TOKENS,
) -> Result:
    """Put each question once, even if the data holds it twice: it is known by its text."""
    subject, spent = metered(subject)
    questions = list({question.text: question for question in questions}.values())
    answers = subject.answer([question.text for question in questions], max_new_tokens)
    likelihoods = answer_logprobs(subject, questions)
    beaten = preferences(subject, questions, [answer.text for answer in answers])
    items = [_item(*each, grade) for each in zip(questions, answers, likelihoods, beaten, strict=True)]
    preferred = [each for each in beaten if each is not None]
    metrics = {
        "match": Metric.of_passes([item.passed for item in items]),
        "f1": Metric.of_values([item.verdicts["f1"] for item in items]),
        "answer_logprob": Metric.of_values(likelihoods),
        "finished": Metric.of_passes([answer.finished for answer in answers]),
    }
    metrics |= {"preferred": Metric.of_passes(preferred)} if preferred else {}
    settings = {"max_new_tokens": max_new_tokens, "thinking": subject.thinking}
    return Result(task, suite, data, metrics, items, settings, *spent())


def answer_logprobs(subject: Subject, questions: Sequence[Question]) -> list[float]:
    """Mean log-likelihood a token of each reference as the reply; its end is left out, to stop there is manners."""
    prompts = [subject.chat.prompt(question.text) for question in questions]
    answers = [subject.encode(question.answer) for question in questions]
    scored = subject.engine.logprobs([prompt + answer for prompt, answer in zip(prompts, answers, strict=True)])
    return [_mean(values[-len(answer) :]) for values, answer in zip(scored, answers, strict=True)]


def _mean(logprobs: list[float]) -> float:
    return math.fsum(value if value > LEAST_LOGPROB else LEAST_LOGPROB for value in logprobs) / len(logprobs)


def preferences(subject: Subject, questions: Sequence[Question], replies: Sequence[str]) -> list[bool | None]:
    """Is the right answer likelier than each rival where the reply names an answer? None where there is no rival."""
    rivals = Rivals([(question.text, question.references) for question in questions])
    against = [rivals.of(i, reply) for i, reply in enumerate(replies)]
    rows: list[list[int]] = []
    lengths: list[int] = []
    for i, (question, others) in enumerate(zip(questions, against, strict=True)):
        begun = rivals.before_the_answer(i, replies[i])
        for answer in (question.answer, *others) if others else ():
            before, after = cut(subject.encode, begun, answer)
            rows.append([*subject.chat.prompt(question.text), *before, *after])
            lengths.append(len(after))
    scored = zip(subject.engine.logprobs(rows), lengths, strict=True)
    means = iter([_mean(values[-length:]) for values, length in scored])
    return [next(means) > max([next(means) for _ in others]) if others else None for others in against]


def _item(question: Question, answer: Answer, likelihood: float, preferred: bool | None, grade: Grade) -> Item:
    overlap = max(f1(answer.text, reference) for reference in question.references)
    verdicts = {
        "reference": question.answer,
        "f1": overlap,
        "answer_logprob": likelihood,
        "finished": answer.finished,
        "preferred": preferred,
    }
    return Item(key_of(question.text), question.text, answer.text, grade(answer.text, question), verdicts)


def _question(row: Row) -> Question:
    where, values = row
    aliases = values.get("aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(alias, str) and alias.strip() for alias in aliases):
        raise RecoverError(f'{where}: "aliases" must be a list of texts')
    return Question(text_field(row, "question"), text_field(row, "answer"), tuple(aliases))
