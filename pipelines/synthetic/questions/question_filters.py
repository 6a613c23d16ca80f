"""Rules that reject a draft by its text alone, before the base is asked to answer it."""

import re

from evals.suites.answer_grading import normalized_words
from pipelines.synthetic.questions.parse import Draft

MAX_ANSWER_WORDS = 12
MAX_COPIED_WORDS = 6  # consecutive words shared with the passage: more than most names have
MIN_SHARED_WORDS = 0.7  # share of words in common that makes two questions with one answer the same question

REFERS_TO_PASSAGE = re.compile(
    r"\b(this|that|the (above|given|following))?\s*(passage|excerpt|paragraph)\b|\baccording to the\b|"
    r"\b(the|this) (text|document|article|author|section)\b|\b(mentioned|described|stated|listed) (above|here|below)\b",
    re.IGNORECASE,
)


def rejection_reason(draft: Draft, passage: str) -> str:
    """Why a draft is dropped, "" if it is not."""
    question, answer, text = normalized_words(draft.question), normalized_words(draft.answer), normalized_words(passage)
    if not draft.question.rstrip().endswith(("?", "？", "؟")) or len(draft.question.split()) < 3:
        return "not a question"
    if not answer or len(answer) > MAX_ANSWER_WORDS:
        return "the answer is empty or too long"
    if REFERS_TO_PASSAGE.search(draft.question):
        return "refers to the passage"
    if _contains(question, answer):
        return "the question contains the answer"
    if not _contains(text, answer):
        return "the passage does not contain the answer"
    if longest_shared_run(question, text) >= MAX_COPIED_WORDS:
        return "copies the passage's wording"
    return ""


def is_same_question(first: Draft, second: Draft) -> bool:
    """Whether two questions have the same answer and nearly the same words."""
    if normalized_words(first.answer) != normalized_words(second.answer):
        return False
    one, other = set(normalized_words(first.question)), set(normalized_words(second.question))
    return len(one & other) >= MIN_SHARED_WORDS * len(one | other)


def longest_shared_run(first: list[str], second: list[str]) -> int:
    """The length of the longest run of words that both texts contain."""
    longest, previous = 0, [0] * (len(second) + 1)
    for word in first:
        current = [0] * (len(second) + 1)
        for i, other in enumerate(second, 1):
            if word == other:
                current[i] = previous[i - 1] + 1
                longest = max(longest, current[i])
        previous = current
    return longest


def _contains(text: list[str], run: list[str]) -> bool:
    return any(text[i : i + len(run)] == run for i in range(len(text) - len(run) + 1))
