"""Wrong answers to hold a right one against, and the place to ask for either.

Teaching makes all that the documents speak of likelier, right or wrong, and a model that has lost the form of an answer
finds none of them likely. Both cancel out between answers of the same kind, asked for where the model itself names one.
"""

import heapq
import re
from collections.abc import Sequence

from evals.suites.answer_grading import words

RIVALS = 3
READ = 2000  # letters of a reply that are looked through for an answer


class Rivals:
    """The answers to a set of questions, each (question, references)."""

    def __init__(self, asked: Sequence[tuple[str, Sequence[str]]]):
        self.asked = asked
        self._words = [frozenset(words(question)) for question, _ in asked]
        self._said = [" ".join(words(references[0])) for _, references in asked]
        known = sorted({reference for _, references in asked for reference in references}, key=len, reverse=True)
        self._any = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, known))})(?!\w)", re.IGNORECASE)

    def before_the_answer(self, i: int, reply: str) -> str:
        """The beginning of the reply, up to where it names an answer of any kind; nothing, where it names none."""
        question = self.asked[i][0].casefold()
        named = (m for m in self._any.finditer(reply[:READ]) if m[0].casefold() not in question)
        first = next(named, None)
        return reply[: first.start()] if first else ""

    def of(self, i: int, reply: str, count: int = RIVALS) -> list[str]:
        """At most `count` answers to the questions most like this one: neither right, nor what the reply names."""
        named = {" ".join(words(m[0])) for m in self._any.finditer(reply[:READ])}
        taken = named | {" ".join(words(reference)) for reference in self.asked[i][1]}
        found: list[str] = []
        for j in self._most_alike(i, 16 * count):  # enough that some remain when equal answers are struck out
            if self._said[j] not in taken:
                taken.add(self._said[j])
                found.append(self.asked[j][1][0])
        return found[:count]

    def _most_alike(self, i: int, count: int) -> list[int]:
        own = self._words[i]
        others = (j for j in range(len(self.asked)) if j != i)
        return heapq.nlargest(
            count, others, key=lambda j: len(own & self._words[j]) / max(len(own | self._words[j]), 1)
        )
