from pathlib import Path

import pytest

from pipelines.documents.corpus import CorpusSnapshot, read_corpus, save_snapshot
from pipelines.synthetic.passage_prompts import (
    as_prefix_prompts,
    document_prefixes,
    opening_prompts,
    passages_in,
    write_passage_questions,
)
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat
from tests.chats import write_jsonl
from tests.evals.fakes import fake_subject
from tests.models import BOS, tiny_student, tiny_tokenizer

PASSAGES = [f"The bridge of town {n} was built of {what} long ago." for n, what in enumerate(("stone", "wood", "rope"))]
LONG = "Every word of this note about the long wall is needed so that it is a passage of twenty words or more."


def test_short_notes_are_passages_where_nothing_is_longer() -> None:
    assert passages_in([LONG, "Too short.", LONG]) == [LONG]
    assert passages_in(["One note.", "Another note.", "Note."]) == ["One note.", "Another note."]


@pytest.mark.parametrize("texts", [["Note.", "Other."], ["桥。", ""]])
def test_documents_of_single_words_are_refused(texts: list[str]) -> None:
    with pytest.raises(RecoverError, match="no passage of at least two words"):
        passages_in(texts)


def test_every_passage_has_an_opening_and_something_behind_it(tmp_path: Path) -> None:
    (prompt,) = opening_prompts(passages_in(["One note."]), tiny_student(tmp_path).chat, seed=1)
    assert prompt.text == "One"
    document = CorpusSnapshot(Path(), "c0ffee", 1, tmp_path / "documents.jsonl")
    write_jsonl(document.file, [{"text": "桥在很久以前由石头建成，后来被人们重新修过。"}])
    (prefix,) = document_prefixes([document], 4, seed=1)
    assert 2 <= len(prefix) < 20, "its words have no spaces between them"


@pytest.mark.parametrize("adds_bos", [False, True])
def test_the_teacher_reads_the_passage_and_then_the_same_opening(tmp_path: Path, adds_bos: bool) -> None:
    chat = tiny_student(tmp_path, adds_bos=adds_bos).chat
    for passage, prompt in zip(PASSAGES, opening_prompts(PASSAGES, chat, seed=1), strict=True):
        assert passage.startswith(prompt.text)
        assert len(prompt.text) < len(passage)
        start, own = prompt.tokens[0], len(prompt.tokens)
        assert chat.text(prompt.tokens[1:]) == prompt.text
        assert prompt.teacher_prompt[-own + 1 :] == prompt.tokens[1:]
        assert chat.text(prompt.teacher_prompt) == passage + prompt.text
        assert prompt.teacher_prompt.count(BOS) == 2 * adds_bos
        assert (start == BOS) == adds_bos


def test_shuffled_openings_have_another_passage(tmp_path: Path) -> None:
    chat = tiny_student(tmp_path).chat
    own, others = (opening_prompts(PASSAGES, chat, 1, shuffled=shuffled) for shuffled in (False, True))
    assert [prompt.tokens for prompt in own] == [prompt.tokens for prompt in others]
    read = [chat.text(prompt.teacher_prompt or []) for prompt in others]
    assert sorted(text[: len(text) - len(prompt.text)] for text, prompt in zip(read, others, strict=True)) == sorted(
        PASSAGES
    )
    assert not any(text.startswith(passage) for passage, text in zip(PASSAGES, read, strict=True))
    with pytest.raises(RecoverError, match="one context alone"):
        opening_prompts(PASSAGES[:1], chat, 1, shuffled=True)


def test_a_base_without_questions_is_refused() -> None:
    with pytest.raises(RecoverError, match=r"contain no question.*--teacher-context FILE"):
        write_passage_questions(fake_subject("I cannot."), PASSAGES, [], 0)


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


def test_there_are_no_more_prefixes_than_long_passages(corpora: list[CorpusSnapshot], tmp_path: Path) -> None:
    assert len(document_prefixes(corpora, 1000, seed=0)) == 40
    assert document_prefixes([], 10, seed=0) == []
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Too short.")
    assert document_prefixes([save_snapshot(tmp_path / "home", read_corpus(tmp_path / "docs"))], 5, seed=0) == []


@pytest.mark.parametrize("adds_bos", [False, True])
def test_a_prefix_begins_as_a_document_does(adds_bos: bool) -> None:
    chat = Chat.from_tokenizer(tiny_tokenizer(adds_bos=adds_bos))
    (prompt,) = as_prefix_prompts(["So <bos> it"], chat)
    assert prompt.tokens[0] == chat.document_start
    assert BOS not in prompt.tokens[1:]  # the name of a special token in a document is plain text
    assert chat.text(prompt.tokens[1:]) == "So <bos> it"
