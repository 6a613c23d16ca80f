"""Choose distractors (wrong answers of the same kind) and the position in a reply at which to score an answer.

Training on documents raises the likelihood of every answer in them, right or wrong, and a model that lost the answer
format finds all of them unlikely. Both effects cancel when the reference is compared with distractors at the position
where the model itself names an answer.
"""

import heapq
import re
from collections.abc import Sequence

from evals.suites.answer_grading import normalized_words

COUNT = 3  # distractors per question
MAX_REPLY_CHARS = 2000  # of a reply, searched for an answer


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

    def select(self, i: int, reply: str, count: int = COUNT) -> list[str]:
        """Return up to `count` answers of the most similar questions that are neither right nor in the reply."""
        excluded = {_normalized(m[0]) for m in self._any_answer.finditer(reply[:MAX_REPLY_CHARS])}
        excluded |= {_normalized(reference) for reference in self.questions[i][1]}
        distractors: list[str] = []
        for j in self._most_similar(i, 16 * count):  # more than needed, as equal answers are dropped
            if self._answers[j] not in excluded:
                excluded.add(self._answers[j])
                distractors.append(self.questions[j][1][0])
        return distractors[:count]

    def _most_similar(self, i: int, count: int) -> list[int]:
        """Indices of the questions with the largest Jaccard similarity."""
        own = self._question_words[i]
        others = (j for j in range(len(self.questions)) if j != i)
        return heapq.nlargest(
            count,
            others,
            key=lambda j: len(own & self._question_words[j]) / max(len(own | self._question_words[j]), 1),
        )


def _normalized(answer: str) -> str:
    return " ".join(normalized_words(answer))
