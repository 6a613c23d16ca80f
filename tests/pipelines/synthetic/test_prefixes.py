"""Openings of earlier documents: from all over them, the same each time, read as mid-training reads."""

from pathlib import Path

import pytest

from pipelines.documents import read_corpus
from pipelines.documents.snapshot import CorpusSnapshot, save_snapshot
from pipelines.synthetic.prefixes import EARLIER_DOMAIN, as_prefix_prompts, document_prefixes
from recovery.models.chat import Chat
from tests.models import tiny_tokenizer


def corpus(folder: Path, name: str, documents: int) -> CorpusSnapshot:
    (folder / name).mkdir()
    for i in range(documents):
        words = " ".join(f"{name}{i}word{j}" for j in range(20))
        (folder / name / f"{i:03}.txt").write_text(f"{words}\n\n  Second part, {words}")
    return save_snapshot(folder / "home", read_corpus(folder / name))


@pytest.fixture
def two(tmp_path: Path) -> list[CorpusSnapshot]:
    return [corpus(tmp_path, "a", 30), corpus(tmp_path, "b", 10)]


def test_each_is_how_a_document_of_its_corpus_begins(two: list[CorpusSnapshot]) -> None:
    found = document_prefixes(two, 13, seed=1)
    texts = [" ".join(text.split()) for each in two for text in each.texts]
    assert [sum(text.startswith(name) for text in found) for name in "ab"] == [7, 6]
    for opening in found:
        (whole,) = (text for text in texts if text.startswith(" ".join(opening.split()) + " "))
        assert 2 <= len(opening.split()) <= 0.75 * len(whole.split())


def test_they_come_from_all_over_and_are_the_same_each_time(two: list[CorpusSnapshot]) -> None:
    found = document_prefixes(two, 20, seed=1)
    assert found == document_prefixes(two, 20, seed=1)
    assert found != document_prefixes(two, 20, seed=2)
    assert len({opening.split()[0] for opening in found}) == len(found)
    assert any(opening.startswith("a2") for opening in found)  # not the first few alone
    assert len({len(opening.split()) for opening in found}) > 5


def test_no_more_are_made_than_there_are_passages(two: list[CorpusSnapshot]) -> None:
    assert len(document_prefixes(two, 1000, seed=0)) == 40
    assert document_prefixes([], 10, seed=0) == []


def test_a_passage_that_is_hardly_one_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Too short.")
    assert document_prefixes([save_snapshot(tmp_path / "home", read_corpus(tmp_path / "docs"))], 5, seed=0) == []


def test_they_are_read_as_a_document_and_not_as_a_chat() -> None:
    chat = Chat.from_tokenizer(tiny_tokenizer(), None)
    (prompt,) = as_prefix_prompts(["So <|im_end|> it"], chat)
    tokenizer = chat.tokenizer
    assert prompt.domain == EARLIER_DOMAIN
    assert prompt.tokens[0] == tokenizer.pad_token_id  # the end of another document
    assert tokenizer.eos_token_id not in prompt.tokens  # what a document spells is text
    assert chat.text(prompt.tokens[1:]) == "So <|im_end|> it"
