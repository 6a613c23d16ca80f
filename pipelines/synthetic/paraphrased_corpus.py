"""A corpus paraphrased by the clean base, cached by content.

Every few passages are one line of a file, so that an interrupted run continues after the last complete line.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pipelines.documents.corpus import CorpusSnapshot
from pipelines.documents.passages import MIN_WORDS, passages_of
from pipelines.log import log
from pipelines.model_loading import OpenSubject
from pipelines.storage import ContentCache, JsonLines, content_hash
from pipelines.synthetic.filter_counts import FilterCounts
from pipelines.synthetic.paraphrases import paraphrase
from recovery.errors import RecoverError

PASSAGES_PER_LINE = 16
PROGRESS_EVERY = 20  # lines


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
