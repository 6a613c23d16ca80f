import pytest

from recovery.errors import RecoverError
from recovery.models.chat_template import Chat, added_tokens, check_same_tokenizer
from tests.chat_families import CONVERSATION
from tests.models import BOS, CHATML, tiny_tokenizer

THINKING = CHATML + "{% if add_generation_prompt and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
SYSTEM = {"role": "system", "content": "be kind"}


def chat(template: str | None = CHATML, pad: str = "<|endoftext|>", thinking: bool = False) -> Chat:
    return Chat.from_tokenizer(tiny_tokenizer(pad=pad, template=template), thinking=thinking)


def target_texts(chat: Chat, conversation: list[dict[str, str]]) -> list[str]:
    """Return the contiguous texts that are targets."""
    tokens, targets = chat.conversation(conversation)
    texts, current = [], []
    for token, target in [*zip(tokens, targets, strict=True), (0, False)]:
        if target:
            current.append(token)
        elif current:
            texts.append(chat.tokenizer.decode(current))
            current = []
    return texts


def test_only_the_assistants_turns_are_targets_up_to_their_eos() -> None:
    for conversation in (CONVERSATION, [SYSTEM, *CONVERSATION]):
        assert target_texts(chat(), conversation) == ["hello<|im_end|>", "farewell<|im_end|>"]


def test_an_eos_that_is_also_the_pad_is_still_a_target() -> None:
    assert target_texts(chat(pad="<|im_end|>"), CONVERSATION) == ["hello<|im_end|>", "farewell<|im_end|>"]


def test_the_prompt_ends_where_the_reply_starts() -> None:
    chatml = chat()
    tokens, targets = chatml.conversation(CONVERSATION[:2])
    assert chatml.prompt("hi") == tokens[: targets.index(True)]


def test_the_thinking_mode_is_passed_to_the_template() -> None:
    assert "</think>" in chat(THINKING).text(chat(THINKING).prompt("hi"))
    assert "</think>" not in chat(THINKING, thinking=True).text(chat(THINKING, thinking=True).prompt("hi"))


def test_a_template_that_rewrites_earlier_turns_is_refused() -> None:
    last_two_turns = "{% for m in messages[-2:] %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    with pytest.raises(RecoverError, match="single-turn"):
        chat(last_two_turns).conversation(CONVERSATION)


def test_turns_that_a_template_does_not_allow_are_an_error() -> None:
    strict = "{% if messages[0].role != 'user' %}{{ raise_exception('Begin with the user.') }}{% endif %}hello"
    with pytest.raises(RecoverError, match=r"turns system \(Begin with the user\.\)"):
        chat(strict).prompt([SYSTEM])


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


def test_a_document_starts_with_the_bos_if_the_tokenizer_adds_one() -> None:
    plain, with_bos = chat(), Chat.from_tokenizer(tiny_tokenizer(adds_bos=True))
    assert (plain.document_bos, plain.scoring_prefix) == (None, plain.tokenizer.eos_token_id)
    assert (with_bos.document_bos, with_bos.scoring_prefix) == (BOS, BOS)
    unused = plain.tokenizer
    unused.bos_token = "<|im_start|>"  # some models define a BOS that they never use
    assert (plain.document_bos, plain.scoring_prefix) == (None, unused.bos_token_id)


def test_a_student_may_have_more_tokens_behind_those_of_its_teacher() -> None:
    student = chat()
    student.tokenizer.add_tokens(["zebra", "quagga"])
    check_same_tokenizer(student, chat())
    assert added_tokens(student, chat()) == 2
