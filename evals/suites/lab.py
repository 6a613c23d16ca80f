"""The suites of the built-in lab base, with generated items: instructions, refusals, arithmetic and its own world."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from random import Random

from evals.results import Result, item_key
from evals.splits import RETENTION_ITEMS, Blocks, Split, oversampled_count, select_items
from evals.subject import Subject
from evals.suites.answer_grading import last_number_matches
from evals.suites.instruction_following import Prompt, measure_ifeval, parse_prompt
from evals.suites.knowledge import Grade, Question, matches_reference, measure_questions
from recovery import lab

SEED = 0  # of the generated items; the base is trained on the "train" items
DEFAULT_INSTRUCTIONS, DEFAULT_NATURAL = 1000, 2000  # they decide a margin of three points
WRITING_TOKENS, ANSWER_TOKENS = 320, 96  # limits that all but one in a thousand right answers fit


def measure_suite(
    suite: str,
    subject: Subject,
    limit: int | None,
    secondary_limit: int | None,
    split: Split,
    blocks: Blocks | None,
) -> list[Result]:
    """Measure a suite; `knowledge` is that of the base's own world, if there are no questions on other documents."""
    if suite == "behaviour":
        instructions = measure_instructions(subject, limit, split, blocks)
        return [instructions, measure_refusals(subject, secondary_limit, split)]
    if suite == "retention":
        return [measure_arithmetic(subject, secondary_limit, split), measure_own_world(subject, secondary_limit, split)]
    return [replace(measure_own_world(subject, limit, split), task="closed_book", suite="knowledge")]


def measure_instructions(
    subject: Subject,
    limit: int | None = None,
    split: Split = "all",
    blocks: Blocks | None = None,
    *,
    natural: bool = False,
) -> Result:
    """`natural`: instructions on common words, for any base; the lab's own items use invented words as well."""
    prompts, data = instruction_prompts(limit, split, natural=natural), "lab-natural" if natural else "lab"
    return measure_ifeval(subject, prompts, data=data, max_new_tokens=WRITING_TOKENS, blocks=blocks)


def instruction_prompts(limit: int | None = None, split: Split = "all", *, natural: bool = False) -> list[Prompt]:
    limit = limit or (DEFAULT_NATURAL if natural else DEFAULT_INSTRUCTIONS)
    tasks = lab.instruction_tasks(SEED, oversampled_count(limit, split), "natural" if natural else "heldout")
    selected = select_items(tasks, lambda task: str(task.key), split, limit)
    return [parse_prompt((f"Lab task {task.key}", asdict(task))) for task in selected]


def measure_refusals(subject: Subject, limit: int | None, split: Split = "all") -> Result:
    limit = limit or 50
    pool = lab.refusals(SEED, oversampled_count(limit, split), "heldout")
    return _measure(subject, "refusals", "behaviour", _select(pool, split, limit))


def measure_arithmetic(subject: Subject, limit: int | None, split: Split = "all") -> Result:
    limit = limit or RETENTION_ITEMS
    questions = _select(lab.arithmetic(SEED, oversampled_count(limit, split), "heldout"), split, limit)
    return _measure(
        subject, "arithmetic", "retention", questions, lambda reply, q: last_number_matches(reply, q.answer)
    )


def measure_own_world(subject: Subject, limit: int | None, split: Split = "all") -> Result:
    """Measure facts that the base was trained on: old knowledge that new knowledge should not displace."""
    pool = lab.own_world().questions()
    limit = limit or RETENTION_ITEMS
    shuffled = Random(SEED).sample(pool, min(oversampled_count(limit, split), len(pool)))
    return _measure(subject, "own_world", "retention", _select(shuffled, split, limit))


def count_retention_items(limit: int | None) -> int:
    limit = limit or RETENTION_ITEMS
    return limit + min(limit, len(lab.own_world().questions()))


def _select(pool: Iterable[lab.Question], split: Split, limit: int) -> list[Question]:
    questions = [Question(question.question, question.answer) for question in pool]
    return select_items(questions, lambda question: item_key(question.text), split, limit)


def _measure(
    subject: Subject, task: str, suite: str, questions: list[Question], grade: Grade = matches_reference
) -> Result:
    return measure_questions(
        subject, questions, task=task, suite=suite, data="lab", grade=grade, max_new_tokens=ANSWER_TOKENS
    )
