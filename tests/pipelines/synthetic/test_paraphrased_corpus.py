"""A corpus in other words: written once, gone on with after an interruption, refused where the base cannot do it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evals.subject import Subject
from pipelines.documents.snapshot import CorpusSnapshot
from pipelines.synthetic.paraphrased_corpus import AT_ONCE, ParaphrasedCorpus
from recovery.errors import RecoverError
from tests.evals.fakes import fake_subject

COUNT = 3 * AT_ONCE + 5


def backwards(asked: str) -> str:
    """All names and numbers of the passage, and none of its runs of words."""
    return " ".join(reversed(asked.rpartition("Passage:\n")[2].split()))


class Base:
    def __init__(self, reply: Callable[[str], str] = backwards):
        self.reply, self.asked, self.loaded = reply, 0, 0

    @contextmanager
    def speaks(self) -> Iterator[Subject]:
        def counted(asked: str) -> str:
            self.asked += 1
            return self.reply(asked)

        self.loaded += 1
        yield fake_subject(counted)


def wordings(folder: Path, model: str = "m", times: int = 1, texts: list[str] | None = None) -> ParaphrasedCorpus:
    route = "from the quay past the lighthouse to the islands, in summer every morning and in winter once a week"
    texts = texts or [f"Ship {i} of the harbour in Oslo is number {i}, and it sails {route}" for i in range(COUNT)]
    file = folder / "corpus.jsonl"
    file.write_text("".join(json.dumps({"source": str(i), "text": text}) + "\n" for i, text in enumerate(texts)))
    return ParaphrasedCorpus(CorpusSnapshot(folder, "content", COUNT, file), times, model, 0, folder)


def test_every_passage_is_reworded_once_and_the_count_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = Base()
    corpus = wordings(tmp_path)
    corpus.write(base.speaks)
    assert len(list(corpus.texts)) == COUNT == base.asked
    assert sorted(next(iter(corpus.texts)).split()) == sorted(next(iter(corpus.corpus.texts)).split())
    assert caplog.messages == [f"  {COUNT} of {COUNT} rewordings of {COUNT} passages are kept"]
    corpus.write(base.speaks)
    assert (base.asked, base.loaded) == (COUNT, 1)
    wordings(tmp_path, model="another").write(base.speaks)
    assert base.asked == 2 * COUNT


def test_what_an_interruption_left_is_gone_on_from(tmp_path: Path) -> None:
    whole = wordings(tmp_path)
    whole.write(Base().speaks)
    expected = list(whole.texts)
    file = next(tmp_path.glob("rewordings-*.jsonl"))
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:2]) + lines[2][:40])  # the third was cut off
    base = Base()
    whole.write(base.speaks)
    assert base.asked == COUNT - 2 * AT_ONCE
    assert list(whole.texts) == expected


def test_what_is_dropped_is_counted_by_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = wordings(tmp_path, times=2)
    corpus.write(Base().speaks)  # the second time it says the same again
    assert corpus.tally.as_dict()["dropped"] == {"copies what stood before": COUNT}
    assert caplog.messages == [
        f"  {COUNT} of {2 * COUNT} rewordings of {COUNT} passages are kept ({COUNT} copies what stood before dropped)"
    ]


def test_a_base_that_cannot_is_refused_after_the_first_passages(tmp_path: Path) -> None:
    base = Base(lambda asked: "Once upon a time.")
    with pytest.raises(
        RecoverError, match=r"none of the 16 rewordings .* leave the paraphrases away, or name a more capable"
    ):
        wordings(tmp_path).try_out(base.speaks)
    assert base.asked == AT_ONCE
    with pytest.raises(RecoverError, match="no passage of 20 words"):
        wordings(tmp_path, model="other", texts=["Too short."]).try_out(base.speaks)


def test_what_was_tried_is_not_written_again(tmp_path: Path) -> None:
    base, corpus = Base(), wordings(tmp_path)
    corpus.try_out(base.speaks)
    assert base.asked == AT_ONCE
    corpus.write(base.speaks)
    assert base.asked == COUNT == len(list(corpus.texts))
