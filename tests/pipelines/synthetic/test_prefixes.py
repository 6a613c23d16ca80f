"""Prefixes of earlier documents: sampled from all of them, reproducible, tokenized as mid-training reads."""

from pathlib import Path

import pytest

from pipelines.documents import read_corpus
from pipelines.documents.corpus import CorpusSnapshot, save_snapshot
from pipelines.synthetic.passage_prompts import EARLIER_DOMAIN, as_prefix_prompts, document_prefixes
from recovery.models.chat_template import Chat
from tests.models import tiny_tokenizer


def snapshot(folder: Path, name: str, documents: int) -> CorpusSnapshot:
    (folder / name).mkdir()
    for i in range(documents):
        words = " ".join(f"{name}{i}word{j}" for j in range(20))
        (folder / name / f"{i:03}.txt").write_text(f"{words}\n\n  Second part, {words}")
    return save_snapshot(folder / "home", read_corpus(folder / name))


@pytest.fixture
def corpora(tmp_path: Path) -> list[CorpusSnapshot]:
    return [snapshot(tmp_path, "a", 30), snapshot(tmp_path, "b", 10)]


def test_each_prefix_begins_a_passage_of_its_corpus(corpora: list[CorpusSnapshot]) -> None:
    prefixes = document_prefixes(corpora, 13, seed=1)
    texts = [" ".join(text.split()) for corpus in corpora for text in corpus.texts]
    assert [sum(text.startswith(name) for text in prefixes) for name in "ab"] == [7, 6]
    for prefix in prefixes:
        (passage,) = (text for text in texts if text.startswith(" ".join(prefix.split()) + " "))
        assert 2 <= len(prefix.split()) <= 0.75 * len(passage.split())


def test_prefixes_are_from_all_documents_and_reproducible(corpora: list[CorpusSnapshot]) -> None:
    prefixes = document_prefixes(corpora, 20, seed=1)
    assert prefixes == document_prefixes(corpora, 20, seed=1)
    assert prefixes != document_prefixes(corpora, 20, seed=2)
    assert len({prefix.split()[0] for prefix in prefixes}) == len(prefixes)
    assert any(prefix.startswith("a2") for prefix in prefixes)  # not only the first few
    assert len({len(prefix.split()) for prefix in prefixes}) > 5


def test_there_are_no_more_prefixes_than_passages(corpora: list[CorpusSnapshot]) -> None:
    assert len(document_prefixes(corpora, 1000, seed=0)) == 40
    assert document_prefixes([], 10, seed=0) == []


def test_short_passages_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Too short.")
    assert document_prefixes([save_snapshot(tmp_path / "home", read_corpus(tmp_path / "docs"))], 5, seed=0) == []


def test_a_prefix_is_tokenized_as_a_document_and_not_as_a_chat() -> None:
    chat = Chat.from_tokenizer(tiny_tokenizer(), None)
    (prompt,) = as_prefix_prompts(["So <|im_end|> it"], chat)
    tokenizer = chat.tokenizer
    assert prompt.domain == EARLIER_DOMAIN
    assert prompt.tokens[0] == tokenizer.pad_token_id  # the end of another document
    assert tokenizer.eos_token_id not in prompt.tokens  # names of special tokens in a document are plain text
    assert chat.text(prompt.tokens[1:]) == "So <|im_end|> it"
