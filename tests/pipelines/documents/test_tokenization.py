from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.documents import tokenization
from pipelines.documents.corpus import Texts
from pipelines.documents.tokenization import count_tokens, estimated_tokens, tokenize_documents
from tests.models import tiny_tokenizer

TOKENIZER = tiny_tokenizer()


@settings(deadline=None)
@given(st.lists(st.text(max_size=20), max_size=150))
@example(["It says <|im_end|> and goes on."])
def test_a_token_file_holds_what_the_tokenizer_says(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    tokens = tokenize_documents(texts, TOKENIZER, tmp_path_factory.mktemp("t"), "x")
    token_ids = [TOKENIZER(t, add_special_tokens=False, split_special_tokens=True)["input_ids"] for t in texts]
    assert [list(ids) for ids in tokens] == token_ids
    assert tokens.tokens == sum(map(len, token_ids))


def test_the_same_texts_are_tokenised_once_by_each_tokenizer(tmp_path: Path) -> None:
    first = tokenize_documents(["one", "two"], TOKENIZER, tmp_path, "x")

    def forbidden() -> Any:
        raise AssertionError("tokenize_documents again")
        yield

    assert [list(ids) for ids in tokenize_documents(forbidden(), TOKENIZER, tmp_path, "x")] == [
        list(ids) for ids in first
    ]
    other = tiny_tokenizer()
    other.add_tokens(["one"])
    assert len(tokenize_documents(["one"], other, tmp_path, "x")[0]) == 1


@pytest.mark.parametrize("suffix", [".u32", ".ends"])
def test_both_files_are_written_again_where_one_is_missing(tmp_path: Path, suffix: str) -> None:
    texts = ["one two three", "four five"]
    whole = [list(ids) for ids in tokenize_documents(texts, TOKENIZER, tmp_path, "x")]
    (file,) = tmp_path.glob(f"*{suffix}")
    file.unlink()
    assert [list(ids) for ids in tokenize_documents(texts, TOKENIZER, tmp_path, "x")] == whole


def test_the_tokens_of_a_large_corpus_are_estimated_from_some_of_its_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, tokenizer = Texts(), tiny_tokenizer()
    for number in range(60):
        texts.add(f"Ship {number} sails. " * (1 + number % 3), 0)
    exact = count_tokens(texts, tokenizer)
    assert estimated_tokens(texts, tokenizer) == exact
    monkeypatch.setattr(tokenization, "COUNTED", 20)
    assert estimated_tokens(texts, tokenizer) == pytest.approx(exact, rel=0.05)
