"""The token between documents and the tokens that end a reply, for well-known chat models."""

from types import SimpleNamespace

import pytest
from transformers import PreTrainedTokenizerFast

from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.chat_template import Chat, document_ends, turn_end
from recovery.models.students import load_chat
from tests.chat_families import CONVERSATION, FAMILIES, UNNAMED, Family
from tests.models import CHATML, bytewise, tiny_tokenizer

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))


def names(chat: Chat, ids: frozenset[int]) -> set[str]:
    return set(chat.tokenizer.convert_ids_to_tokens(sorted(ids)))


def chat_of(family: Family) -> Chat:
    tokenizer = family.tokenizer()
    return Chat.from_tokenizer(tokenizer, SimpleNamespace(eos_token_id=tokenizer.convert_tokens_to_ids(family.eos)))


@families
def test_the_separator_is_the_one_of_pre_training_and_ends_replies_like_every_end_of_a_turn(family: Family) -> None:
    chat = chat_of(family)
    assert names(chat, frozenset({chat.separator})) == {family.separator}
    assert document_ends(chat.tokenizer) == (chat.separator,)
    assert names(chat, chat.eos_ids) == family.turn_ends | {family.separator}


@families
def test_the_template_tells_the_end_of_a_turn_where_there_is_no_generation_config(family: Family) -> None:
    chat = Chat.from_tokenizer(family.tokenizer())
    assert names(chat, chat.eos_ids) == family.turn_ends - {"<|eom_id|>"} | {family.separator}


@families
def test_a_document_starts_behind_the_bos_or_another_documents_end(family: Family) -> None:
    chat = chat_of(family)
    start = family.roles["bos_token"] if family.adds_bos else family.separator
    assert names(chat, frozenset({chat.document_start})) == {start}


@families
def test_the_text_of_a_reply_has_no_stop_token(family: Family) -> None:
    chat = chat_of(family)
    reply = chat.tokenizer.encode("hello", add_special_tokens=False)
    assert {chat.text([*reply, end]) for end in chat.eos_ids} == {"hello"}


@pytest.mark.parametrize("family", [f for name, f in FAMILIES.items() if name != "qwen3"])
def test_the_assistants_turns_are_targets_up_to_their_end(family: Family) -> None:
    chat = chat_of(family)
    tokens, targets = chat.conversation(CONVERSATION)
    replies = [token for token, target in zip(tokens, targets, strict=True) if target]
    end = chat.tokenizer.decode([turn_end(chat.tokenizer)])
    assert chat.tokenizer.decode(replies) == f"hello{end}farewell{end}"


def test_what_a_template_writes_behind_the_end_of_a_turn_is_no_target() -> None:
    template = CHATML + "{% if not add_generation_prompt %}<|endoftext|>{% endif %}"  # as Phi-3's
    chat = Chat.from_tokenizer(tiny_tokenizer(template=template))
    tokens, targets = chat.conversation(CONVERSATION)
    replies = [token for token, target in zip(tokens, targets, strict=True) if target]
    assert chat.tokenizer.decode(replies) == "hello<|im_end|>farewell<|im_end|>"
    assert chat.separator not in tokens


def test_the_labs_separator_and_stop_tokens_are_those_that_it_was_trained_with() -> None:
    chat = load_chat(str(BASE))
    assert (chat.separator, chat.document_start, chat.eos_ids) == (0, 0, frozenset({0, 2}))
    assert document_ends(chat.tokenizer) == (0,)


def test_without_a_known_name_the_eos_is_the_first_guess_and_tokens_of_chats_are_none() -> None:
    tokenizer = UNNAMED.tokenizer()
    candidates = tokenizer.convert_ids_to_tokens(list(document_ends(tokenizer)))
    assert candidates[0] == "<|im_end|>"
    assert set(candidates) == {"<|im_end|>", "<unk>", "<blank>"}


def test_of_several_known_names_the_eos_is_the_first_guess() -> None:
    special = ["<|endoftext|>", "</s>"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise(special), eos_token="</s>", pad_token="<|endoftext|>")
    assert document_ends(tokenizer) == (1, 0)


def test_an_ordinary_token_that_looks_like_a_separator_is_none() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise(["</s>", "<stop>"]), eos_token="<stop>")
    assert document_ends(tokenizer) == (1,)


def test_a_tokenizer_without_any_end_is_refused() -> None:
    with pytest.raises(RecoverError, match="Set its eos_token"):
        Chat.from_tokenizer(PreTrainedTokenizerFast(tokenizer_object=bytewise([])))
