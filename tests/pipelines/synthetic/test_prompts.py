import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig

from pipelines.synthetic.prompts import (
    ChatPrompt,
    filter_prompts,
    parse_prompt,
    read_prompts,
    share_of_checks,
    shuffled_contexts,
    user_turn,
    with_context_of,
    write_prompts,
)
from recovery.engines import Generation
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.chat_template import Chat
from recovery.models.students import load_student
from recovery.samples import Sample
from tests.chat_families import FAMILIES, GLM_4_9B, MISTRAL_7B, Family
from tests.chats import exchange
from tests.evals.fakes import fake_subject
from tests.models import tiny_student


def test_prompts_are_lines_or_jsonl(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("{Name} a river.\n\n Count to three. \n")
    assert [prompt.text for prompt in read_prompts(tmp_path / "lines.txt")] == ["{Name} a river.", "Count to three."]
    (tmp_path / "rows.jsonl").write_bytes(b'\xef\xbb\xbf{"prompt": "Say hi."}\n')
    assert [prompt.text for prompt in read_prompts(tmp_path / "rows.jsonl")] == ["Say hi."]
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\n\n{"text": "b"}\n')
    with pytest.raises(RecoverError, match="Line 3"):
        read_prompts(tmp_path / "bad.jsonl")
    (tmp_path / "array.jsonl").write_text('[{"prompt": "Say hi."}, {"prompt": "Say no."}]\n')
    with pytest.raises(RecoverError, match=r"Line 1 of .*array\.jsonl is not a JSON object"):
        read_prompts(tmp_path / "array.jsonl")
    with pytest.raises(RecoverError, match="Cannot read"):
        read_prompts(tmp_path / "none")


def test_the_base_writes_prompts() -> None:
    base = load_student(str(BASE), frozen=True)
    written = write_prompts(TransformersEngine(base), base.chat, 40, seed=1)
    assert len(set(written)) == 40
    assert all(len(prompt.split()) >= 2 and "<|im_" not in prompt for prompt in written)


def test_a_base_that_cannot_write_prompts_says_what_to_do(tmp_path: Path) -> None:
    student = tiny_student(tmp_path, template=None)
    with pytest.raises(RecoverError, match="--prompts"):
        write_prompts(TransformersEngine(student), student.chat, 200)


@pytest.mark.parametrize("family", [FAMILIES["llama3"], FAMILIES["olmo2"], MISTRAL_7B, GLM_4_9B])
def test_a_prompt_ends_where_the_template_goes_on(family: Family) -> None:
    tokenizer = family.tokenizer()
    chat = Chat.from_tokenizer(tokenizer, GenerationConfig(eos_token_id=tokenizer.convert_tokens_to_ids(family.eos)))
    start, _ = user_turn(chat)
    names = [f"Name river {number}." for number in range(20)]
    written = [chat.conversation(exchange(name, "The Nile"))[0][len(start) :] for name in names]
    ends = [next((i for i, id in enumerate(row) if id in chat.eos_ids), 150) for row in written]
    replies = [Generation(row[: end + 1], [], end < 150) for row, end in zip(written, ends, strict=True)]
    engine = SimpleNamespace(generate=lambda prompts, sampling: replies)
    assert write_prompts(engine, chat, 20) == names


def test_prompts_of_a_data_set_are_read_by_field_and_filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [
        {"prompt": "Name a river."},
        {"prompt": "Name a river!"},
        {
            "prompt": None,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi you."}],
        },
        {"conversations": [{"from": "human", "value": "Count to ten."}, {"from": "gpt", "value": "One"}]},
        {"instruction": "Sum up.", "input": "A long story."},
        {"other": 1},
    ]
    monkeypatch.setattr(datasets, "load_dataset", lambda name, **options: rows)
    prompts = read_prompts(Path("some/chat"))
    assert [prompt.user_text for prompt in prompts] == [
        "Name a river.",
        "Hi you.",
        "Count to ten.",
        "Sum up.\n\nA long story.",
    ]
    assert [message["role"] for message in prompts[1].messages] == ["system", "user"]
    assert prompts[2].reply == [{"role": "assistant", "content": "One"}]
    monkeypatch.setattr(datasets, "load_dataset", lambda name, **options: [{"other": 1}])
    with pytest.raises(RecoverError, match="No row of some/chat has a prompt"):
        read_prompts(Path("some/chat"))


LONG = " ".join(f"word{i}" for i in range(300))


def test_unsuitable_prompts_and_duplicates_are_dropped() -> None:
    kept = filter_prompts(
        [
            "Name three rivers.",
            "name  three RIVERS",
            "Hm",
            "今天天气怎么样",
            "go on " * 30,
            "what \ufffd is",
            "many " * 1_001,
            LONG,
            f"{LONG} indeed",
            LONG.upper(),
            "Nenne drei große Flüsse in Europa und beschreibe sie kurz.",
        ]
    )
    assert kept == ["Name three rivers.", "今天天气怎么样", LONG, f"{LONG} indeed", kept[-1]]
    assert kept[-1].startswith("Nenne drei")


@given(st.lists(st.text()))
def test_filtering_twice_changes_nothing(prompts: list[str]) -> None:
    once = filter_prompts(prompts)
    assert filter_prompts(once) == once


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


def test_an_answer_that_is_labelled_as_wrong_is_no_reply(tmp_path: Path) -> None:
    rows = [{"prompt": "Hi", "completion": "Hello"} | label for label in ({}, {"label": 0}, {"kto_tag": False})]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    assert [bool(prompt.reply) for prompt in read_prompts(tmp_path / "rows.json")] == [True, False, False]


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "assistant", "content": "x"}]},
        {"messages": [{"role": "user", "content": ["x"]}]},
        {"messages": ["x"]},
        {"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}]},
        {"text": "x"},
        {"prompt": "What is it?", "image": {"path": "a.png"}},
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
    share = share_of_checks([parse(prompt="a", answer="x"), two, parse(prompt="c")], lambda _, reply: "xyz"[reply[0]])

    def rollout(prompt: str, token: int) -> Sample:
        return Sample([9, token], [False, True], prompt=prompt)

    assert [share(rollout("a", token)) for token in (0, 1)] == [1, 0]
    assert [share(rollout("b", token)) for token in (0, 1)] == [0.5, 1]
    assert share(rollout("c", 0)) == 0


@pytest.mark.parametrize("begun", ["", "<think>\n"])
def test_a_reward_is_of_the_text_that_evaluations_judge(begun: str) -> None:
    short = parse(prompt="2 + 2?", checks=[{"starts_with": "Four"}, {"max_words": 1}])
    share = share_of_checks([short], fake_subject("").reply_text)

    def rollout(reply: str) -> Sample:
        return Sample.behind([ord(c) for c in f"2 + 2?{begun}"], [ord(c) for c in reply], prompt="2 + 2?")

    thought = f"{'' if begun else '<think>'}That is four, or so I think."
    assert share(rollout(f"{thought}</think>\n\nFour")) == 1
    assert share(rollout(f"{thought}</think>\n\nThe sum is four")) == 0
    assert share(rollout(thought)) == 0, "it has not begun to reply"
    assert share(rollout("Four")) == (0 if begun else 1)
