"""The lab's own suites: what the built-in base can do, asked as any model is asked, judged by the same checkers."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from random import Random

from evals.results import Result, key_of
from evals.splits import Part, chosen, enough
from evals.subject import Subject
from evals.suites.answer_grading import ends_on
from evals.suites.instruction_following import Prompt, measure_ifeval, prompt_of
from evals.suites.knowledge import Grade, Question, ask, by_match
from recovery import lab

SEED = 0  # evaluations draw their items with it; the base is trained on the other split
WRITING_TOKENS, ANSWER_TOKENS = 320, 96  # room for all right answers but one in a thousand


def behaviour(subject: Subject, limit: int | None, beside: int | None, part: Part) -> list[Result]:
    return [instructions(subject, limit, part), refusals(subject, beside, part)]


def retention(subject: Subject, limit: int | None, beside: int | None, part: Part) -> list[Result]:
    return [arithmetic(subject, beside, part), own_world(subject, beside, part)]


def knowledge(subject: Subject, limit: int | None, beside: int | None, part: Part) -> list[Result]:
    """Where nobody brings questions on other documents: what the base was taught."""
    return [replace(own_world(subject, limit, part), task="closed_book", suite="knowledge")]


SUITES = {"behaviour": behaviour, "knowledge": knowledge, "retention": retention}


def instructions(subject: Subject, limit: int | None = None, part: Part = "all") -> Result:
    return measure_ifeval(subject, prompts(limit, part), data="lab", max_new_tokens=WRITING_TOKENS)


def prompts(limit: int | None = None, part: Part = "all") -> list[Prompt]:
    limit = limit or 200
    tasks = lab.instruction_tasks(SEED, enough(limit, part), "heldout")
    mine = chosen(tasks, lambda task: str(task.key), part, limit)
    return [prompt_of((f"lab task {task.key}", asdict(task))) for task in mine]


def refusals(subject: Subject, limit: int | None = None, part: Part = "all") -> Result:
    limit = limit or 50
    asked = lab.refusals(SEED, enough(limit, part), "heldout")
    return _ask(subject, "refusals", "behaviour", _chosen(asked, part, limit))


def arithmetic(subject: Subject, limit: int | None = None, part: Part = "all") -> Result:
    limit = limit or 100
    asked = _chosen(lab.arithmetic(SEED, enough(limit, part), "heldout"), part, limit)
    return _ask(subject, "arithmetic", "retention", asked, lambda reply, question: ends_on(reply, question.answer))


def own_world(subject: Subject, limit: int | None = None, part: Part = "all") -> Result:
    """Facts the base was trained on: the old knowledge that new knowledge must not push out."""
    asked = lab.own_world().questions()
    shuffled = Random(SEED).sample(asked, min(enough(limit or 100, part), len(asked)))
    return _ask(subject, "own_world", "retention", _chosen(shuffled, part, limit or 100))


def _chosen(asked: Iterable[lab.Question], part: Part, limit: int) -> list[Question]:
    questions = [Question(each.question, each.answer) for each in asked]
    return chosen(questions, lambda question: key_of(question.text), part, limit)


def _ask(subject: Subject, task: str, suite: str, questions: list[Question], grade: Grade = by_match) -> Result:
    return ask(subject, questions, task=task, suite=suite, data="lab", grade=grade, max_new_tokens=ANSWER_TOKENS)
