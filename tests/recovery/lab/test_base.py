"""The base's tokenizer encodes any text, and the shipped base loads in transformers."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.lab import BASE, own_world
from recovery.lab.training.curriculum import batches, conversations, render, texts, train_tokenizer

shipped = pytest.mark.skipif(not (BASE / "config.json").exists(), reason="no base has been built here")


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


@shipped
def test_the_base_loads_in_transformers_and_answers() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(BASE), AutoTokenizer.from_pretrained(BASE)
    assert model.config.model_type == "qwen3"
    assert model.config.max_position_embeddings >= 4096
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.eos_token != tokenizer.pad_token
    assert tokenizer.eos_token_id in model.generation_config.eos_token_id
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello!"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        reply = model.generate(**prompt, do_sample=False, max_new_tokens=40)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.eos_token_id in reply


@shipped
def test_the_base_is_small_and_names_its_suites() -> None:
    assert sum(file.stat().st_size for file in BASE.iterdir()) <= 16 * 2**20
    assert not [file for file in BASE.iterdir() if file.suffix in (".bin", ".pt", ".pkl", ".tmp")]
    metadata = json.loads((BASE / "recover.json").read_text())
    assert metadata["suites"] == {"behaviour": "lab", "retention": "lab"}
