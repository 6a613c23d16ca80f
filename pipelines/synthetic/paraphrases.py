"""A corpus paraphrased by the clean base: facts that are read in several wordings are recalled better.

A paraphrase that adds, loses or only copies text teaches nothing or something false, so each is compared with its
passage. All are cached by content: every few passages are one line of a file, so that an interrupted run continues
after the last complete line.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any

from evals.subject import Subject, strip_thinking
from evals.suites.answer_grading import normalized_words
from evals.suites.training_texts import NAMES, NUMBER, SENTENCE_START
from pipelines.documents.corpus import CorpusSnapshot
from pipelines.documents.passages import MIN_WORDS, passages_of
from pipelines.log import log
from pipelines.model_loading import OpenSubject
from pipelines.storage import ContentCache, JsonLines, content_hash
from pipelines.synthetic.questions import FilterCounts
from recovery.engines import Sampling
from recovery.errors import RecoverError

PASSAGES_PER_LINE = 16
PROGRESS_EVERY = 20  # lines
MIN_LENGTH, MAX_LENGTH = 0.5, 1.8  # of the passage's words
MIN_NAMES = 0.8  # share of the passage's names that a paraphrase must have; of its numbers, all
MAX_COPIED = 0.5  # share of a paraphrase's 4-grams that the passage or an earlier paraphrase may have
MAX_TOKENS = 2  # for each token of the longest passage
PARAPHRASE_PROMPT = """\
Write the passage below once more in other words. Change the sentences, not what they say: keep every name,
every number and every fact, and add nothing. Write the new passage only.

Passage:
{passage}"""


@dataclass(frozen=True)
class ParaphrasedCorpus:
    corpus: CorpusSnapshot
    times: int  # maximum number of paraphrases of each passage
    base_weights: str  # hash of the weights of the model that paraphrases
    seed: int
    folder: Path

    @property
    def hash(self) -> str:
        """Of all inputs. The version is one of them: another release may cut or paraphrase passages differently."""
        return content_hash(self._inputs)

    @property
    def texts(self) -> Iterator[str]:
        return (text for line in self._lines for text in line["kept"])

    @property
    def counts(self) -> FilterCounts:
        total = FilterCounts()
        for line in self._lines:
            total.add(FilterCounts(line["passages"], line["written"], len(line["kept"]), Counter(line["dropped"])))
        return total

    def try_first_passages(self, open_subject: OpenSubject) -> None:
        """Paraphrase the first passages. Raise if the filters accept none: the base is not capable of it."""
        self._write(open_subject, lines=1)
        first = next(iter(self._lines), None)
        if first is None:
            raise RecoverError(
                f"The documents have no passage of {MIN_WORDS} words, so there is nothing to paraphrase. "
                "Mid-train without paraphrases: --set midtrain.mix.paraphrases=0."
            )
        if not first["kept"]:
            reasons = ", ".join(self.counts.reasons(2))
            raise RecoverError(
                f"The base cannot paraphrase: none of its first {first['written']} paraphrases passed the filters "
                f"({reasons}). Mid-train without paraphrases (--set midtrain.mix.paraphrases=0), or start another "
                "project with a more capable --base."
            )

    def write(self, open_subject: OpenSubject) -> None:
        """Paraphrase every passage that is not paraphrased yet."""
        self._write(open_subject)
        counts = self.counts
        dropped = f" (dropped: {', '.join(counts.reasons())})" if counts.dropped else ""
        log.info(f"  Kept {counts.kept} of {counts.written} paraphrases of {counts.passages} passages{dropped}")

    def _write(self, open_subject: OpenSubject, lines: int | None = None) -> None:
        start = self._lines.repair()
        batches = islice(self._batches(), start, lines)
        first = next(batches, None)
        if first is None:
            return
        with open_subject() as subject:
            self._lines.append(
                self._line(number, *paraphrase(subject, passages, self.times, f"{self.seed}/{number}"))
                for number, passages in enumerate(chain([first], batches), start)
            )

    def _line(self, number: int, texts: list[str], counts: FilterCounts) -> dict[str, Any]:
        if number % PROGRESS_EVERY == PROGRESS_EVERY - 1:
            log.info(f"  {(number + 1) * PASSAGES_PER_LINE} passages paraphrased")
        return counts.as_dict() | {"kept": texts}

    def _batches(self) -> Iterator[list[str]]:
        passages = (passage for text in self.corpus.texts for passage in passages_of(text, MIN_WORDS))
        while batch := list(islice(passages, PASSAGES_PER_LINE)):
            yield batch

    @property
    def _inputs(self) -> list[Any]:
        return [version("recover"), PASSAGES_PER_LINE, self.corpus.hash, self.times, self.base_weights, self.seed]

    @property
    def _lines(self) -> JsonLines:
        return JsonLines(ContentCache(self.folder).path("paraphrases", self._inputs, ".jsonl"))


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
