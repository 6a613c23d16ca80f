from pathlib import Path

import pytest

from evals.subject import Subject
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.chat_template import DATE, Chat, added_tokens, check_same_tokenizer
from tests.chat_families import CONVERSATION
from tests.models import BOS, CHATML, tiny_student, tiny_tokenizer

THINKING = CHATML + "{% if add_generation_prompt and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"


def chat(template: str | None = CHATML, thinking: bool = False) -> Chat:
    return Chat.from_tokenizer(tiny_tokenizer(template=template), thinking=thinking)


def test_the_thinking_mode_is_passed_to_the_template() -> None:
    assert "</think>" in chat(THINKING).text(chat(THINKING).prompt("hi"))
    assert "</think>" not in chat(THINKING, thinking=True).text(chat(THINKING, thinking=True).prompt("hi"))


def test_a_template_that_rewrites_earlier_turns_is_refused() -> None:
    last_two_turns = "{% for m in messages[-2:] %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    with pytest.raises(RecoverError, match="single-turn"):
        chat(last_two_turns).conversation(CONVERSATION)


def test_a_template_with_todays_date_reads_the_same_on_any_day(tmp_path: Path) -> None:
    dated = chat("<|im_start|>system\n{{ strftime_now('%d %b %Y') }}<|im_end|>\n" + CHATML)
    subject = Subject(TransformersEngine(tiny_student(tmp_path)), dated)
    for rendered in (dated.text(dated.prompt("hi")), subject.prompt_text("hi")):
        assert f"{DATE:%d %b %Y}" in rendered


@pytest.mark.parametrize("reply", ["Paris", "\nParis", "\n\nParis"])
def test_a_reply_may_begin_with_what_makes_one_token_with_its_prompt(reply: str) -> None:
    merging = chat(CHATML)
    merging.tokenizer.add_tokens(["assistant\n\n"])  # as two newlines are one token in many vocabularies
    tokens, targets = merging.conversation([CONVERSATION[0], {"role": "assistant", "content": reply}])
    prompt = merging.prompt([CONVERSATION[0]])
    assert tokens[: len(prompt)] == prompt
    learned = [token for token, target in zip(tokens, targets, strict=True) if target]
    assert merging.text(learned) == reply


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
