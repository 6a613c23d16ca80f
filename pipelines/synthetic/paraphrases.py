"""Passages in other words, by the clean base: a fact that was read in several wordings is one that can be recalled.

A rewording that adds, loses or only copies teaches nothing or something false, so each is held against its passage.
"""

from collections.abc import Iterable, Sequence

from evals.subject import Subject, strip_thinking
from evals.suites.answer_grading import normalized_words
from evals.suites.passage_recall import NAMES, NUMBER, SENTENCE_START
from pipelines.synthetic.filter_counts import Tally
from recovery.engines import Sampling

SHORTEST, LONGEST = 0.5, 1.8  # of the passage's words
KEPT_NAMES = 0.8  # of the passage's names that a rewording must keep; of its numbers, all
COPIED = 0.5  # of a rewording's runs of four words that may stand so in the passage, or in an earlier rewording
ROOM = 2  # tokens that a rewording may take for each of the passage's

REWORD = """Write the passage below once more in other words. Change the sentences, not what they say: keep every name,
every number and every fact, and add nothing. Write the new passage only.

Passage:
{passage}"""


def paraphrase(subject: Subject, passages: Sequence[str], times: int, dice: str = "") -> tuple[list[str], Tally]:
    """Up to `times` rewordings of every passage, each different from the passage and from one another."""
    kept, tally = [], Tally(passages=len(passages))
    before = {passage: [passage] for passage in passages}
    for turn in range(times):
        for passage, text in zip(passages, _written(subject, passages, f"{dice}/{turn}"), strict=True):
            tally.written += 1
            reason = why_not(text, passage, before[passage])
            if reason or text is None:
                tally.dropped[reason] += 1
                continue
            before[passage].append(text)
            kept.append(text)
    tally.kept = len(kept)
    return kept, tally


def why_not(text: str | None, passage: str, before: Iterable[str]) -> str:
    """What speaks against a rewording; `before` are the passage and its earlier rewordings."""
    if text is None:
        return "never ended"
    if not SHORTEST <= len(text.split()) / len(passage.split()) <= LONGEST:
        return "much shorter or longer than the passage"
    if numbers_in(text) != numbers_in(passage):
        return "loses or adds a number"
    names = names_in(passage)
    if len(names - set(normalized_words(text))) > (1 - KEPT_NAMES) * len(names):
        return "loses names"
    runs = _runs(text)
    if any(len(runs & _runs(other)) > COPIED * len(runs) for other in before):
        return "copies what stood before"
    return ""


def numbers_in(text: str) -> set[str]:
    return {number.replace(",", "") for number in NUMBER.findall(text)}


def names_in(text: str) -> set[str]:
    """The words of what is capitalised where no sentence begins."""
    found = [m.group() for m in NAMES.finditer(text) if not SENTENCE_START.search(text[: m.start()])]
    return {word for name in found for word in normalized_words(name)}


def _written(subject: Subject, passages: Sequence[str], dice: str) -> list[str | None]:
    encode = subject.chat.tokenizer.encode
    room = ROOM * max(len(encode(passage, add_special_tokens=False)) for passage in passages)
    asked = [subject.chat.prompt(REWORD.format(passage=passage)) for passage in passages]
    sampling = Sampling(room, seed=int.from_bytes(dice.encode()) % (2**31 - 1))
    written = subject.engine.generate(asked, sampling)
    return [strip_thinking(subject.chat.text(g.tokens)).strip() if g.finished else None for g in written]


def _runs(text: str) -> set[tuple[str, ...]]:
    said = normalized_words(text)
    return {tuple(said[i : i + 4]) for i in range(max(1, len(said) - 3))}
