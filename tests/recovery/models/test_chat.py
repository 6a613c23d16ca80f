import pytest

from recovery.errors import RecoverError
from recovery.models.chat import Chat
from recovery.teachers import check_same_tokenizer
from tests.models import BOS, CHATML, tiny_tokenizer

THINKING = CHATML + "{% if add_generation_prompt and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
SYSTEM = {"role": "system", "content": "be kind"}
TALK = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "bye"},
    {"role": "assistant", "content": "farewell"},
]


def chat(template: str | None = CHATML, pad: str = "<|endoftext|>", thinking: bool = False) -> Chat:
    return Chat.from_tokenizer(tiny_tokenizer(pad=pad, template=template), thinking=thinking)


def taught(speaker: Chat, talk: list[dict[str, str]]) -> list[str]:
    """The stretches of text that are targets."""
    tokens, targets = speaker.conversation(talk)
    stretches, current = [], []
    for token, target in [*zip(tokens, targets, strict=True), (0, False)]:
        if target:
            current.append(token)
        elif current:
            stretches.append(speaker.tokenizer.decode(current))
            current = []
    return stretches


def test_only_the_assistant_is_taught_each_turn_up_to_its_end() -> None:
    for talk in (TALK, [SYSTEM, *TALK]):
        assert taught(chat(), talk) == ["hello<|im_end|>", "farewell<|im_end|>"]


def test_a_pad_that_is_the_eos_hides_no_end() -> None:
    assert taught(chat(pad="<|im_end|>"), TALK) == ["hello<|im_end|>", "farewell<|im_end|>"]


def test_the_reply_begins_where_the_prompt_ends() -> None:
    speaker = chat()
    tokens, targets = speaker.conversation(TALK[:2])
    assert speaker.prompt("hi") == tokens[: targets.index(True)]


def test_thinking_is_left_as_it_is_told() -> None:
    assert "</think>" in chat(THINKING).text(chat(THINKING).prompt("hi"))
    assert "</think>" not in chat(THINKING, thinking=True).text(chat(THINKING, thinking=True).prompt("hi"))


def test_a_template_that_rewrites_earlier_turns_is_refused_with_the_way_out() -> None:
    forgetful = "{% for m in messages[-2:] %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    with pytest.raises(RecoverError, match="single-turn"):
        chat(forgetful).conversation(TALK)


def test_without_a_template_or_an_answer_the_sentence_says_what_to_do() -> None:
    with pytest.raises(RecoverError, match="chat template"):
        chat(template=None).prompt("hi")
    with pytest.raises(RecoverError, match="assistant turn"):
        chat().conversation(TALK[:1])


def test_teachers_of_another_language_are_refused() -> None:
    check_same_tokenizer(chat(), chat())
    with pytest.raises(RecoverError, match="chat templates differ"):
        check_same_tokenizer(chat(), chat(CHATML.replace("assistant\n", "assistant\n\n")))
    other = chat()
    other.tokenizer.add_tokens(["zebra"])
    with pytest.raises(RecoverError, match="different tokenizers"):
        check_same_tokenizer(chat(), other)


def test_a_document_begins_with_what_the_tokenizer_itself_puts_there() -> None:
    plain, begins = chat(), Chat.from_tokenizer(tiny_tokenizer(begins=True))
    assert (plain.document_bos, plain.scoring_prefix) == (None, plain.tokenizer.eos_token_id)
    assert (begins.document_bos, begins.scoring_prefix) == (BOS, BOS)
    unused = plain.tokenizer
    unused.bos_token = "<|im_start|>"  # as some models name one that no text begins with
    assert (plain.document_bos, plain.scoring_prefix) == (None, unused.bos_token_id)
