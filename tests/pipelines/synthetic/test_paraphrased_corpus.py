"""A paraphrased corpus: written once, resumed after an interruption, refused if the base cannot paraphrase."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evals.subject import Subject
from pipelines.documents.corpus import CorpusSnapshot
from pipelines.synthetic.paraphrases import PASSAGES_PER_LINE, ParaphrasedCorpus
from recovery.errors import RecoverError
from tests.evals.fakes import fake_subject

COPIES = "copies the passage or an earlier paraphrase"
COUNT = 3 * PASSAGES_PER_LINE + 5


def backwards(message: str) -> str:
    """All names and numbers of the passage, and none of its 4-grams."""
    return " ".join(reversed(message.rpartition("Passage:\n")[2].split()))


class Base:
    def __init__(self, reply: Callable[[str], str] = backwards):
        self.reply, self.prompts, self.loads = reply, 0, 0

    @contextmanager
    def open_subject(self) -> Iterator[Subject]:
        def count(message: str) -> str:
            self.prompts += 1
            return self.reply(message)

        self.loads += 1
        yield fake_subject(count)


def paraphrased(folder: Path, weights: str = "m", times: int = 1, texts: list[str] | None = None) -> ParaphrasedCorpus:
    route = "from the quay past the lighthouse to the islands, in summer every morning and in winter once a week"
    texts = texts or [f"Ship {i} of the harbour in Oslo is number {i}, and it sails {route}" for i in range(COUNT)]
    file = folder / "corpus.jsonl"
    file.write_text("".join(json.dumps({"source": str(i), "text": text}) + "\n" for i, text in enumerate(texts)))
    return ParaphrasedCorpus(CorpusSnapshot(folder, "content", COUNT, file), times, weights, 0, folder)


def test_every_passage_is_paraphrased_once_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = Base()
    corpus = paraphrased(tmp_path)
    corpus.write(base.open_subject)
    assert len(list(corpus.texts)) == COUNT == base.prompts
    assert sorted(next(iter(corpus.texts)).split()) == sorted(next(iter(corpus.corpus.texts)).split())
    assert caplog.messages == [f"  Kept {COUNT} of {COUNT} paraphrases of {COUNT} passages"]
    corpus.write(base.open_subject)
    assert (base.prompts, base.loads) == (COUNT, 1)
    paraphrased(tmp_path, weights="another").write(base.open_subject)
    assert base.prompts == 2 * COUNT


def test_an_interrupted_run_is_resumed(tmp_path: Path) -> None:
    corpus = paraphrased(tmp_path)
    corpus.write(Base().open_subject)
    expected = list(corpus.texts)
    file = next(tmp_path.glob("paraphrases-*.jsonl"))
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:2]) + lines[2][:40])  # the third is incomplete
    base = Base()
    corpus.write(base.open_subject)
    assert base.prompts == COUNT - 2 * PASSAGES_PER_LINE
    assert list(corpus.texts) == expected


def test_dropped_paraphrases_are_counted_by_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = paraphrased(tmp_path, times=2)
    corpus.write(Base().open_subject)  # the second paraphrase repeats the first
    assert corpus.counts.as_dict()["dropped"] == {COPIES: COUNT}
    assert caplog.messages == [
        f"  Kept {COUNT} of {2 * COUNT} paraphrases of {COUNT} passages (dropped: {COUNT} {COPIES})"
    ]


def test_a_base_that_cannot_paraphrase_is_refused_after_the_first_passages(tmp_path: Path) -> None:
    base = Base(lambda message: "Once upon a time.")
    with pytest.raises(RecoverError, match=r"none of its first 16 paraphrases passed .* with a more capable --base"):
        paraphrased(tmp_path).try_first_passages(base.open_subject)
    assert base.prompts == PASSAGES_PER_LINE
    with pytest.raises(RecoverError, match="no passage of 20 words"):
        paraphrased(tmp_path, weights="other", texts=["Too short."]).try_first_passages(base.open_subject)


def test_the_first_passages_are_not_written_again(tmp_path: Path) -> None:
    base, corpus = Base(), paraphrased(tmp_path)
    corpus.try_first_passages(base.open_subject)
    assert base.prompts == PASSAGES_PER_LINE
    corpus.write(base.open_subject)
    assert base.prompts == COUNT == len(list(corpus.texts))
