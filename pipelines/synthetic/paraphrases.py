"""Paraphrases of passages by the clean base: facts that are read in several wordings are recalled better.

A paraphrase that adds, loses or only copies text teaches nothing or something false, so each is compared with its
passage.
"""

from collections.abc import Iterable, Sequence

from evals.subject import Subject, strip_thinking
from evals.suites.answer_grading import normalized_words
from evals.suites.training_texts import NAMES, NUMBER, SENTENCE_START
from pipelines.synthetic.filter_counts import FilterCounts
from recovery.engines import Sampling

MIN_LENGTH, MAX_LENGTH = 0.5, 1.8  # of the passage's words
MIN_NAMES = 0.8  # share of the passage's names that a paraphrase must have; of its numbers, all
MAX_COPIED = 0.5  # share of a paraphrase's 4-grams that the passage or an earlier paraphrase may have
MAX_TOKENS = 2  # for each token of the longest passage

PARAPHRASE_PROMPT = """\
Write the passage below once more in other words. Change the sentences, not what they say: keep every name,
every number and every fact, and add nothing. Write the new passage only.

Passage:
{passage}"""


def paraphrase(subject: Subject, passages: Sequence[str], times: int, seed: str = "") -> tuple[list[str], FilterCounts]:
    """Write up to `times` paraphrases of every passage, each different from the passage and from the others."""
    accepted: list[str] = []
    counts = FilterCounts(passages=len(passages))
    earlier = {passage: [passage] for passage in passages}
    for turn in range(times):
        for passage, text in zip(passages, _generate(subject, passages, f"{seed}/{turn}"), strict=True):
            counts.written += 1
            reason = rejection_reason(text, passage, earlier[passage])
            if reason or text is None:
                counts.dropped[reason] += 1
                continue
            earlier[passage].append(text)
            accepted.append(text)
    counts.kept = len(accepted)
    return accepted, counts


def rejection_reason(text: str | None, passage: str, earlier: Iterable[str]) -> str:
    """Why a paraphrase is dropped, "" if it is not; `earlier` are the passage and its earlier paraphrases."""
    if text is None:
        return "did not end"
    if not MIN_LENGTH <= len(text.split()) / len(passage.split()) <= MAX_LENGTH:
        return "much shorter or longer than the passage"
    if numbers_in(text) != numbers_in(passage):
        return "loses or adds a number"
    names = names_in(passage)
    if len(names - set(normalized_words(text))) > (1 - MIN_NAMES) * len(names):
        return "loses names"
    grams = _four_grams(text)
    if any(len(grams & _four_grams(other)) > MAX_COPIED * len(grams) for other in earlier):
        return "copies the passage or an earlier paraphrase"
    return ""


def numbers_in(text: str) -> set[str]:
    return {number.replace(",", "") for number in NUMBER.findall(text)}


def names_in(text: str) -> set[str]:
    """The words of capitalised phrases that do not begin a sentence."""
    names = [m.group() for m in NAMES.finditer(text) if not SENTENCE_START.search(text[: m.start()])]
    return {word for name in names for word in normalized_words(name)}


def _generate(subject: Subject, passages: Sequence[str], seed: str) -> list[str | None]:
    """One paraphrase of each passage; None where the model did not end it."""
    encode = subject.chat.tokenizer.encode
    max_new_tokens = MAX_TOKENS * max(len(encode(passage, add_special_tokens=False)) for passage in passages)
    prompts = [subject.chat.prompt(PARAPHRASE_PROMPT.format(passage=passage)) for passage in passages]
    sampling = Sampling(max_new_tokens, seed=int.from_bytes(seed.encode()) % (2**31 - 1))
    generations = subject.engine.generate(prompts, sampling)
    return [strip_thinking(subject.chat.text(g.tokens)).strip() if g.finished else None for g in generations]


def _four_grams(text: str) -> set[tuple[str, ...]]:
    tokens = normalized_words(text)
    return {tuple(tokens[i : i + 4]) for i in range(max(1, len(tokens) - 3))}
