"""Which drafts are questions at all, by their words alone. A rule is a reason to drop one, or "" to keep it."""

import re

from evals.suites.answer_grading import normalized_words
from pipelines.synthetic.questions.parse import Draft

LONGEST_ANSWER = 12  # words
COPIED = 6  # words in a row that stand so in the passage: more than most names have
SAME = 0.7  # share of words that two questions with one answer have in common

LEANS = re.compile(
    r"\b(this|that|the (above|given|following))?\s*(passage|excerpt|paragraph)\b|\baccording to the\b|"
    r"\b(the|this) (text|document|article|author|section)\b|\b(mentioned|described|stated|listed) (above|here|below)\b",
    re.IGNORECASE,
)


def why_not(draft: Draft, passage: str) -> str:
    question, answer, said = normalized_words(draft.question), normalized_words(draft.answer), normalized_words(passage)
    if not draft.question.rstrip().endswith(("?", "？", "؟")) or len(draft.question.split()) < 3:
        return "not a question"
    if not answer or len(answer) > LONGEST_ANSWER:
        return "no answer of a few words"
    if LEANS.search(draft.question):
        return "leans on the passage"
    if _stands_in(answer, question):
        return "the answer stands in the question"
    if not _stands_in(answer, said):
        return "the answer does not stand in the passage"
    if longest_shared_run(question, said) >= COPIED:
        return "copies the passage's wording"
    return ""


def same_question(one: Draft, other: Draft) -> bool:
    """Nearly the same words, for the same answer."""
    some, others = set(normalized_words(one.question)), set(normalized_words(other.question))
    return normalized_words(one.answer) == normalized_words(other.answer) and len(some & others) >= SAME * len(
        some | others
    )


def longest_shared_run(some: list[str], others: list[str]) -> int:
    best, before = 0, [0] * (len(others) + 1)
    for word in some:
        now = [0] * (len(others) + 1)
        for i, other in enumerate(others, 1):
            if word == other:
                now[i] = before[i - 1] + 1
                best = max(best, now[i])
        before = now
    return best


def _stands_in(short: list[str], long: list[str]) -> bool:
    return any(long[i : i + len(short)] == short for i in range(len(long) - len(short) + 1))
