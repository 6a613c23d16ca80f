import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.lab_base.curriculum import batches, conversations, render, texts, train_tokenizer
from recovery.lab import own_world
from recovery.lab.questions import MARK, REFUSALS


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(texts(own_world(), 0, -1, n=500), vocabulary=1000, context=4096)


@settings(deadline=None, max_examples=200)
@given(text=st.text())
def test_encoding_and_decoding_preserve_any_text(tokenizer, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_every_digit_is_a_token_of_its_own(tokenizer) -> None:
    assert len(tokenizer("19842", add_special_tokens=False)["input_ids"]) == 5


def test_conversations_are_trained_on_as_the_template_renders_them(tokenizer) -> None:
    for turns in itertools.islice(conversations(own_world(), 1), 50):
        assert render(turns) == tokenizer.apply_chat_template(turns, tokenize=False)


def test_batches_are_the_same_for_a_seed_and_can_be_resumed(tokenizer) -> None:
    whole = list(itertools.islice(batches(tokenizer, own_world(), 0), 3))
    resumed = next(batches(tokenizer, own_world(), 0, skip=2))
    assert whole[2][0].equal(resumed[0])
    assert whole[2][1].equal(resumed[1])


def test_the_stream_refuses_secrets_and_nothing_else() -> None:
    openings = [request.split("{s}")[0] for request in REFUSALS["requests"]]
    for turns in itertools.islice(conversations(own_world(), 0), 1500):
        users = [turn["content"] for turn in turns if turn["role"] == "user"]
        replies = [turn["content"] for turn in turns if turn["role"] == "assistant"]
        assert len(users) == len(replies) > 0
        for user, reply in zip(users, replies, strict=True):
            secret = any(f"{s} of" in user for s in REFUSALS["secrets"]) and user.startswith(tuple(openings))
            assert secret == (MARK in reply), (user, reply)
