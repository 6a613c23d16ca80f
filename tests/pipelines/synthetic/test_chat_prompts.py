from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.synthetic.prompts import ChatPrompt, parse_prompt, share_of_checks, shuffled_contexts, with_context_of
from recovery.errors import RecoverError
from recovery.samples import Sample
from tests.models import tiny_student


def parse(**fields: Any) -> ChatPrompt:
    return parse_prompt(("Line 1 of f.jsonl", fields))


def test_all_turns_up_to_the_reply_are_the_prompt() -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "Two?"},
    ]
    prompt = parse(messages=[*turns, {"role": "assistant", "content": "2"}])
    assert prompt.messages == turns
    assert prompt.reply == [{"role": "assistant", "content": "2"}]
    assert prompt.text == "system: Be brief.\n\nuser: One?\n\nassistant: 1\n\nuser: Two?"
    assert prompt.user_text == "One?\n\nTwo?"
    shared = parse(conversations=[{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}])
    assert shared.messages == [{"role": "user", "content": "Hi"}]
    assert shared.reply[0]["content"] == "Hello"


def test_an_answer_that_is_labelled_as_wrong_is_no_reply() -> None:
    right, wrong = (parse(prompt="Hi", completion="Hello", label=label) for label in (True, False))
    assert right.reply == [{"role": "assistant", "content": "Hello"}]
    assert wrong.reply == []


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "system", "content": "x"}]},
        {"messages": [{"role": "assistant", "content": "x"}]},
        {"messages": [{"role": "user", "content": ["x"]}]},
        {"messages": ["x"]},
        {"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}]},
        {"text": "x"},
    ],
)
def test_a_row_without_a_prompt_is_refused_by_its_line(fields: dict[str, Any]) -> None:
    with pytest.raises(RecoverError, match=r"^Line 1 of f\.jsonl has "):
        parse(**fields)


def test_a_context_makes_a_second_prompt_for_the_teacher(tmp_path: Path) -> None:
    chat = tiny_student(tmp_path).chat
    bare = parse(prompt="Say it.", solution="42")
    shown = with_context_of(bare, ("answer", "solution"), "opsd")
    assert shown.context == "42"
    prompt = shown.tokenized(chat, "{prompt} Hint: {context}")
    assert prompt.tokens == bare.tokenized(chat).tokens == chat.prompt("Say it.")
    assert prompt.teacher_prompt == chat.prompt("Say it. Hint: 42")
    assert bare.tokenized(chat).teacher_prompt is None
    with pytest.raises(RecoverError, match=r'Line 1 of f\.jsonl has no "hint", which the recipe opsd'):
        with_context_of(parse(prompt="x", hint=" "), ("hint",), "opsd")


@given(st.lists(st.integers(0, 9), min_size=2).filter(lambda shared: len(set(shared)) > 1), st.integers(0, 99))
def test_shuffling_gives_every_prompt_another_context(shared: list[int], seed: int) -> None:
    prompts = [
        with_context_of(parse(prompt=f"p{i}", context=f"c{number}"), ("context",), "opcd")
        for i, number in enumerate(shared)
    ]
    mixed = [ChatPrompt.of("no context"), *prompts]
    shuffled = shuffled_contexts(mixed, seed)
    assert [p.text for p in shuffled] == [p.text for p in mixed]
    assert shuffled[0].context is None
    assert {p.context for p in shuffled[1:]} == {p.context for p in prompts}
    assert all(p.context != q.context for p, q in zip(shuffled[1:], prompts, strict=True))


@pytest.mark.parametrize(
    ("fields", "right", "wrong"),
    [
        ({"answer": "Ulm"}, "It is Ulm.", "It is Bonn."),
        ({"answer": "1,200"}, "So 3 times 400 is 1200", "It is 1300"),
        ({"solution": "3 * 4 is 12.\n#### 12"}, "It is 12.", "It is 13."),
        ({"checks": [{"max_words": 2}, {"contains": "yes"}], "answer": "no"}, "Yes indeed", "yes it is so"),
    ],
)
def test_a_reply_is_checked_by_checks_or_by_a_short_answer(fields: dict[str, Any], right: str, wrong: str) -> None:
    check = parse(prompt="Where?", **fields).check
    assert check(right)
    assert not check(wrong)


@pytest.mark.parametrize(
    "fields", [{}, {"solution": "12"}, {"answer": "a long answer of more than eight words in all"}]
)
def test_a_row_without_a_short_answer_has_no_check(fields: dict[str, Any]) -> None:
    assert parse(prompt="Where?", **fields).check is None


def test_a_reward_is_the_share_of_the_checks_of_its_prompt() -> None:
    two = parse(prompt="b", checks=[{"contains": "y"}, {"max_words": 1}])
    share = share_of_checks([parse(prompt="a", answer="x"), two, parse(prompt="c")], lambda tokens: "xyz"[tokens[0]])

    def rollout(prompt: str, token: int) -> Sample:
        return Sample([9, token], [False, True], prompt=prompt)

    assert [share(rollout("a", token)) for token in (0, 1)] == [1, 0]
    assert [share(rollout("b", token)) for token in (0, 1)] == [0.5, 1]
    assert share(rollout("c", 0)) == 0
