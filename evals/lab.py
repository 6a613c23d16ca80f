"""The lab's own suites: what the built-in base can do, asked as any model is asked, judged by the same checkers."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from random import Random

from evals.behaviour import measure_ifeval, prompt_of
from evals.grading import ends_on
from evals.knowledge import Grade, Question, ask, by_match
from evals.results import Result
from evals.subject import Subject
from recovery import lab

SEED = 0  # evaluations draw their items with it; the base is trained on the other split
WRITING_TOKENS, ANSWER_TOKENS = 320, 96  # room for the longest right answer


def behaviour(subject: Subject, limit: int | None = None) -> list[Result]:
    return [instructions(subject, limit), refusals(subject, limit)]


def retention(subject: Subject, limit: int | None = None) -> list[Result]:
    return [arithmetic(subject, limit), own_world(subject, limit)]


def knowledge(subject: Subject, limit: int | None = None) -> list[Result]:
    """Where nobody brings questions on other documents: what the base was taught."""
    return [replace(own_world(subject, limit), task="closed_book", suite="knowledge")]


SUITES = {"behaviour": behaviour, "knowledge": knowledge, "retention": retention}


def instructions(subject: Subject, limit: int | None = None) -> Result:
    tasks = lab.instruction_tasks(SEED, limit or 200, "heldout")
    prompts = [prompt_of((f"lab task {task.key}", asdict(task))) for task in tasks]
    return measure_ifeval(subject, prompts, data="lab", max_new_tokens=WRITING_TOKENS)


def refusals(subject: Subject, limit: int | None = None) -> Result:
    return _ask(subject, "refusals", "behaviour", lab.refusals(SEED, limit or 50, "heldout"))


def arithmetic(subject: Subject, limit: int | None = None) -> Result:
    questions = lab.arithmetic(SEED, limit or 100, "heldout")
    return _ask(subject, "arithmetic", "retention", questions, lambda reply, question: ends_on(reply, question.answer))


def own_world(subject: Subject, limit: int | None = None) -> Result:
    """Facts the base was trained on: the old knowledge that new knowledge must not push out."""
    questions = lab.own_world().questions()
    return _ask(subject, "own_world", "retention", Random(SEED).sample(questions, min(limit or 100, len(questions))))


def _ask(subject: Subject, task: str, suite: str, asked: Iterable[lab.Question], grade: Grade = by_match) -> Result:
    questions = [Question(each.question, each.answer) for each in asked]
    return ask(subject, questions, task=task, suite=suite, data="lab", grade=grade, max_new_tokens=ANSWER_TOKENS)
