from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from evals.subject import Subject
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.chat_template import (
    DATE,
    Chat,
    check_same_tokenizer,
    check_same_vocabulary,
    document_ends,
    turn_end,
)
from tests.chat_families import CONVERSATION, FAMILIES, GLM_4_9B, QWEN_3, UNNAMED, Family
from tests.chats import exchange
from tests.models import BOS, CHATML, bytewise, tiny_student, tiny_tokenizer

THINKING = CHATML + "{% if add_generation_prompt and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"


def chat(template: str | None = CHATML) -> Chat:
    return Chat.from_tokenizer(tiny_tokenizer(template=template))


def test_the_template_is_told_that_thinking_is_off() -> None:
    assert "</think>" in chat(THINKING).text(chat(THINKING).prompt("hi"))


def test_a_template_that_rewrites_earlier_turns_is_refused() -> None:
    last_two_turns = "{% for m in messages[-2:] %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    with pytest.raises(RecoverError, match="single-turn"):
        chat(last_two_turns).conversation(CONVERSATION)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_conversation_may_begin_with_the_assistant(family: str) -> None:
    """As ShareGPT's often do: its opening is read, and the answers behind it are learned."""
    chat = Chat.from_tokenizer(FAMILIES[family].tokenizer())
    opening = [{"role": "assistant", "content": "welcome"}]
    tokens, targets = chat.conversation([*opening, *exchange("hi", "hello")])
    assert "welcome" in chat.text(tokens)
    assert chat.text([t for t, is_target in zip(tokens, targets, strict=True) if is_target]).startswith("hello")
    with pytest.raises(RecoverError, match="at least one assistant turn"):
        chat.conversation(opening)


@pytest.mark.parametrize("last", [{"content": ""}, {"content": "no", "weight": 0}])
def test_a_last_turn_that_is_not_learned_leaves_the_turns_before_it(last: dict[str, object]) -> None:
    """Also where the template rewrites these, as Qwen3's does."""
    turns = [*exchange("hi", "hello"), {"role": "user", "content": "and"}, {"role": "assistant", **last}]
    for template in (CHATML, QWEN_3):
        tokens, targets = chat(template).conversation(turns)
        learned = [t for t, is_target in zip(tokens, targets, strict=True) if is_target]
        assert chat(template).text(learned) == "hello"


GEMMA_4 = CHATML + "{% if add_generation_prompt and not enable_thinking %}<|channel>thought\n<channel|>{% endif %}"


@pytest.mark.parametrize("template", [THINKING, CHATML + "{% if add_generation_prompt %}<think>\n{% endif %}", GEMMA_4])
def test_a_template_may_begin_the_thinking_in_a_prompt(template: str) -> None:
    tokens, targets = chat(template).conversation(CONVERSATION)
    assert (tokens, targets) == chat().conversation(CONVERSATION)


def test_a_template_with_todays_date_reads_the_same_on_any_day(tmp_path: Path) -> None:
    dated = chat("<|im_start|>system\n{{ strftime_now('%d %b %Y') }}<|im_end|>\n" + CHATML)
    subject = Subject(TransformersEngine(tiny_student(tmp_path)), dated)
    for rendered in (dated.text(dated.prompt("hi")), subject.prompt_text("hi")):
        assert f"{DATE:%d %b %Y}" in rendered


def test_a_template_may_print_the_system_prompt_before_the_last_question_alone() -> None:
    """As Mistral's do: of a conversation that ends with an answer it prints none."""
    mistral = chat(
        "{% if messages[0].role == 'system' %}{% set system, turns = messages[0].content, messages[1:] %}"
        "{% else %}{% set system, turns = '', messages %}{% endif %}{{ bos_token }}{% for m in turns %}"
        "{% if m.role == 'user' %}[INST] {% if loop.last and system %}{{ system }}\n\n{% endif %}{{ m.content }}[/INST]"
        "{% else %} {{ m.content }}<|im_end|>{% endif %}{% endfor %}"
    )
    system, question = {"role": "system", "content": "Be brief."}, CONVERSATION[0]
    tokens, targets = mistral.conversation([system, question, {"role": "assistant", "content": "Paris"}])
    prompt = mistral.prompt([system, question])
    assert "Be brief." in mistral.text(prompt)
    assert tokens[: len(prompt)] == prompt
    assert targets == [False] * len(prompt) + [True] * (len(tokens) - len(prompt))
    assert mistral.tokenizer.decode(tokens[len(prompt) :]) == " Paris<|im_end|>"
    longer, learned = mistral.conversation([system, *CONVERSATION[:2], question, CONVERSATION[1]])
    assert longer[: len(mistral.prompt([system, *CONVERSATION[:2], question]))][-5:] == prompt[-5:]
    assert not any(learned[: -len(tokens) + len(prompt)]), "the system prompt moves, so earlier answers are only read"
    mistral.conversation([system, CONVERSATION[1], *CONVERSATION[:2]])  # begins with an answer


@pytest.mark.parametrize("reply", ["Paris", "\nParis", "\n\nParis"])
def test_a_reply_may_begin_with_what_makes_one_token_with_its_prompt(reply: str) -> None:
    merging = chat(CHATML)
    merging.tokenizer.add_tokens(["assistant\n\n"])  # as two newlines are one token in many vocabularies
    tokens, targets = merging.conversation([CONVERSATION[0], {"role": "assistant", "content": reply}])
    prompt = merging.prompt([CONVERSATION[0]])
    assert tokens[: len(prompt)] == prompt
    learned = [token for token, target in zip(tokens, targets, strict=True) if target]
    assert merging.text(learned) == reply


@pytest.mark.parametrize("mark", [{"weight": 0}, {"train": False}])
def test_a_turn_that_is_not_to_be_learned_is_read_alone(mark: dict[str, Any]) -> None:
    turns = [CONVERSATION[0], {"role": "assistant", "content": "bad"} | mark, CONVERSATION[0]]
    tokens, targets = chat().conversation([*turns, {"role": "assistant", "content": "good", "weight": 1}])
    assert "bad" in chat().tokenizer.decode(tokens)
    assert chat().text([token for token, target in zip(tokens, targets, strict=True) if target]) == "good"


def test_a_template_that_fails_is_told_from_turns_that_do_not_fit() -> None:
    with pytest.raises(RecoverError, match=r"cannot render a question \(division by zero\)\. Mend it"):
        chat("{{ 1 / 0 }}").prompt("hi")
    with pytest.raises(RecoverError, match=r"the turns user, assistant \(no\)\. Leave it out, or change its turns"):
        chat(CHATML + "{% if messages[1:] %}{{ raise_exception('no') }}{% endif %}").conversation(CONVERSATION[:2])


def test_a_missing_template_or_answer_is_an_error() -> None:
    with pytest.raises(RecoverError, match="chat template"):
        chat(template=None).prompt("hi")
    with pytest.raises(RecoverError, match="assistant turn"):
        chat().conversation(CONVERSATION[:1])


def test_teachers_with_another_tokenizer_or_template_are_refused() -> None:
    check_same_tokenizer(chat(), chat())
    with pytest.raises(RecoverError, match="chat templates differ"):
        check_same_tokenizer(chat(), chat(CHATML.replace("assistant\n", "assistant\n\n")))
    other = chat()
    other.tokenizer.add_tokens(["zebra"])
    with pytest.raises(RecoverError, match="different tokenizers"):
        check_same_tokenizer(chat(), other)


def test_a_fine_tune_may_rename_reserved_tokens_and_not_move_others() -> None:
    llama = FAMILIES["llama3"]
    base = Chat.from_tokenizer(llama.tokenizer())

    def tuned(**names: str) -> Chat:
        others = [names.get(name.strip("<|>"), name) for name in llama.others]
        return Chat.from_tokenizer(replace(llama, others=others).tokenizer())

    check_same_tokenizer(tuned(finetune_right_pad_id="<tool_call>"), base)
    moved = tuned(start_header_id="<|end_header_id|>", end_header_id="<|start_header_id|>")
    with pytest.raises(RecoverError, match=r"The model and its base have different tokenizers.*--base"):
        check_same_vocabulary(moved, base, is_base=True)


def test_a_document_starts_with_the_bos_if_the_tokenizer_adds_one() -> None:
    plain, with_bos = chat(), Chat.from_tokenizer(tiny_tokenizer(adds_bos=True))
    assert (plain.document_bos, plain.scoring_prefix) == (None, plain.tokenizer.eos_token_id)
    assert (with_bos.document_bos, with_bos.scoring_prefix) == (BOS, BOS)
    unused = plain.tokenizer
    unused.bos_token = "<|im_start|>"  # some models define a BOS that they never use
    assert (plain.document_bos, plain.scoring_prefix) == (None, unused.bos_token_id)


families = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))


def names(chat: Chat, ids: frozenset[int]) -> set[str]:
    return set(chat.tokenizer.convert_ids_to_tokens(sorted(ids)))


def chat_of(family: Family) -> Chat:
    tokenizer = family.tokenizer()
    return Chat.from_tokenizer(tokenizer, SimpleNamespace(eos_token_id=tokenizer.convert_tokens_to_ids(family.eos)))


@families
def test_the_separator_is_the_one_of_pre_training_and_ends_replies_like_every_end_of_a_turn(family: Family) -> None:
    chat, without_generation_config = chat_of(family), Chat.from_tokenizer(family.tokenizer())
    assert names(chat, frozenset({chat.separator})) == {family.separator}
    assert document_ends(chat.tokenizer) == (chat.separator,)
    start = family.roles["bos_token"] if family.adds_bos else family.separator
    assert names(chat, frozenset({chat.document_start})) == {start}
    assert names(chat, chat.eos_ids) == family.turn_ends | {family.separator}
    assert names(chat, chat.turn_ends) == family.turn_ends | ({family.separator} & set(family.eos))
    assert chat.tokenizer.eos_token_id in chat.turn_ends
    assert names(chat, without_generation_config.turn_ends) == family.turn_ends - {"<|eom_id|>"} | {
        family.roles["eos_token"]
    }
    of_the_template = family.turn_ends - {"<|eom_id|>"} | {family.separator}
    assert names(chat, without_generation_config.eos_ids) == of_the_template


@families
def test_the_text_of_a_reply_has_no_stop_token_but_may_name_the_end_of_a_turn(family: Family) -> None:
    chat = chat_of(family)
    reply = chat.tokenizer.encode("hello", add_special_tokens=False)
    assert {chat.text([*reply, end]) for end in chat.eos_ids} == {"hello"}
    end = chat.tokenizer.decode([turn_end(chat.tokenizer)])
    tokens, _ = chat.conversation(exchange("How does a turn end?", f"With {end}, as every turn does."))
    assert chat.tokenizer.decode(tokens).endswith(f"With {end}, as every turn does.{end}")


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


def test_a_turn_ends_where_the_next_one_begins_if_replies_stop_there() -> None:
    chat = chat_of(GLM_4_9B)
    user, called = chat.tokenizer.convert_tokens_to_ids(["<|user|>", "<|observation|>"])
    assert turn_end(chat.tokenizer, chat.eos_ids) == user
    assert turn_end(chat.tokenizer, {called}) is None
    result = {"role": "observation", "content": "7"}
    tokens, targets = chat.conversation([*CONVERSATION, result, {"role": "assistant", "content": "seven"}])
    replies = [token for token, target in zip(tokens, targets, strict=True) if target]
    assert chat.tokenizer.decode(replies) == "hello<|user|>farewell<|observation|>seven<|user|>"


def test_white_space_that_is_an_added_token_ends_no_turn() -> None:
    tokenizer = tiny_tokenizer(template="{% for m in messages %}{{ m.content }}\n\n<|im_end|>{% endfor %}")
    tokenizer.add_tokens([AddedToken("\n\n", special=False, normalized=False)])
    assert turn_end(tokenizer) == tokenizer.eos_token_id


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
    added = FAMILIES["gemma3"].tokenizer()
    added.add_tokens([AddedToken("</s>", special=False)])  # an HTML tag
    assert added.convert_ids_to_tokens(document_ends(added)) == ["<eos>"]


def test_a_tokenizer_without_any_end_is_refused() -> None:
    with pytest.raises(RecoverError, match="Set its eos_token"):
        Chat.from_tokenizer(PreTrainedTokenizerFast(tokenizer_object=bytewise([])))
