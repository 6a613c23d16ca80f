from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig

from pipelines.synthetic.prompts import filter_prompts, read_prompts, user_turn, write_prompts
from recovery.engines import Generation
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.chat_template import Chat
from recovery.models.students import load_student
from tests.chat_families import FAMILIES, GLM_4_9B, MISTRAL_7B, Family
from tests.chats import exchange
from tests.models import tiny_student


def test_prompts_are_lines_or_jsonl(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("{Name} a river.\n\n Count to three. \n")
    assert [prompt.text for prompt in read_prompts(tmp_path / "lines.txt")] == ["{Name} a river.", "Count to three."]
    (tmp_path / "rows.jsonl").write_bytes(b'\xef\xbb\xbf{"prompt": "Say hi."}\n')
    assert [prompt.text for prompt in read_prompts(tmp_path / "rows.jsonl")] == ["Say hi."]
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\n\n{"text": "b"}\n')
    with pytest.raises(RecoverError, match="Line 3"):
        read_prompts(tmp_path / "bad.jsonl")
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
    assert write_prompts(engine, chat, 20) == names  # type: ignore[arg-type]


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


@settings(deadline=None)
@given(st.lists(st.text()))
def test_filtering_twice_changes_nothing(prompts: list[str]) -> None:
    once = filter_prompts(prompts)
    assert filter_prompts(once) == once
