"""A corpus in the clean base's other words, kept by content: every few passages are a line of a file, so that what was
written before an interruption is not written again."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any

from evals.subject import Subject
from pipelines.documents.passages import FEWEST_WORDS, passages_of
from pipelines.documents.snapshot import CorpusSnapshot
from pipelines.files import write_atomic
from pipelines.log import log
from pipelines.synthetic.filter_counts import Tally
from pipelines.synthetic.paraphrases import paraphrase
from recovery.errors import RecoverError

AT_ONCE = 16  # passages
TOLD = 20  # lines between two words on how far it is

Speaks = Callable[[], AbstractContextManager[Subject]]


@dataclass(frozen=True)
class ParaphrasedCorpus:
    corpus: CorpusSnapshot
    times: int  # that a passage is reworded, at most
    model: str  # the weights' hash of who rewords
    seed: int
    folder: Path

    @property
    def hash(self) -> str:
        """Of all that decides them: another release may cut or reword otherwise, and must not go on in this file."""
        said = [version("recover"), AT_ONCE, self.corpus.hash, self.times, self.model, self.seed]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    @property
    def texts(self) -> Iterator[str]:
        return (text for line in self._lines() for text in line["kept"])

    @property
    def tally(self) -> Tally:
        told = Tally()
        for line in self._lines():
            told.add(Tally(line["passages"], line["written"], len(line["kept"]), Counter(line["dropped"])))
        return told

    def try_out(self, speaks: Speaks) -> None:
        """The first passages; a base of whose rewordings none stands the test cannot do it, and is refused."""
        self._write(speaks, lines=1)
        first = next(self._lines(), None)
        if first is None:
            raise RecoverError(f"the documents hold no passage of {FEWEST_WORDS} words, so leave the paraphrases away")
        if not first["kept"]:
            reasons = ", ".join(self.tally.reasons(2))
            raise RecoverError(
                f"none of the {first['written']} rewordings that the base wrote stood the test ({reasons}), so it "
                "cannot reword: leave the paraphrases away, or name a more capable model with --base"
            )

    def write(self, speaks: Speaks) -> None:
        """All that is not written yet."""
        self._write(speaks)
        tally = self.tally
        dropped = f" ({', '.join(tally.reasons())} dropped)" if tally.dropped else ""
        log.info(f"  {tally.kept} of {tally.written} rewordings of {tally.passages} passages are kept{dropped}")

    def _write(self, speaks: Speaks, lines: int | None = None) -> None:
        done = self._whole_lines()
        missing = islice(self._batches(), done, lines)
        first = next(missing, None)
        if first is None:
            return
        with speaks() as subject, self._file.open("a", encoding="utf-8") as out:
            for number, passages in enumerate(chain([first], missing), done):
                kept, tally = paraphrase(subject, passages, self.times, f"{self.seed}/{number}")
                print(json.dumps(tally.as_dict() | {"kept": kept}, ensure_ascii=False), file=out, flush=True)
                if number % TOLD == TOLD - 1:
                    log.info(f"  {(number + 1) * AT_ONCE} passages reworded")

    def _whole_lines(self) -> int:
        """How many; a last one that was cut off goes."""
        written = self._file.read_bytes() if self._file.is_file() else b""
        whole = written[: written.rfind(b"\n") + 1]  # perhaps within a letter of several bytes
        if whole != written or not self._file.is_file():
            write_atomic(self._file, [whole.decode("utf-8")])
        return whole.count(b"\n")

    def _batches(self) -> Iterator[list[str]]:
        passages = (passage for text in self.corpus.texts for passage in passages_of(text, FEWEST_WORDS))
        while some := list(islice(passages, AT_ONCE)):
            yield some

    def _lines(self) -> Iterator[dict[str, Any]]:
        with self._file.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)

    @property
    def _file(self) -> Path:
        return self.folder / f"rewordings-{self.hash[:16]}.jsonl"
