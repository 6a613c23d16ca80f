"""From a file to tokens: every turn of a conversation as the student and the teacher read it, and what is learned."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.documents.conversations import read_training_file, warn_of_unread_tools
from pipelines.settings.schema import Distill
from pipelines.storage import JsonLines
from pipelines.synthetic.prompts import ChatPrompt, read_prompts, with_context_of
from pipelines.training.document_rows import training_file_samples
from pipelines.training.recipe_inputs import check_prompts
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat
from recovery.recipes import recipe
from tests.chat_families import FAMILIES
from tests.chats import exchange, write_jsonl

SMOLLM_2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WITH_TOOLS = (  # as Qwen2.5 has them
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TURNS = [{"role": "system", "content": "Be brief."}, *exchange("3 + 4?", "7"), *exchange("Sure?", "Yes.")]
TOOLS = [{"name": "sum"}]
FUNCTION = '{"name": "sum", "arguments": {"of": [3, 4]}}'
CALLING = {
    "conversations": [
        {"from": "human", "value": "3 + 4?"},
        {"from": "function_call", "value": FUNCTION},
        {"from": "observation", "value": "7"},
        {"from": "gpt", "value": "It is 7."},
    ],
    "tools": json.dumps(TOOLS),
}


def chat_of(folder: Path, template: str) -> Chat:
    FAMILIES["smollm2"].save(folder)
    (folder / "chat_template.jinja").write_text(template)
    return load_chat(str(folder))


def prompts_of(folder: Path, *rows: dict[str, Any]) -> list[ChatPrompt]:
    return read_prompts(write_jsonl(folder / "chats.jsonl", rows))


def learned(chat: Chat, tokens: list[int], targets: list[bool]) -> str:
    """All tokens as text, with brackets around those that are learned."""
    text, inside = "", False
    for token, target in [*zip(tokens, targets, strict=True), (None, False)]:
        text += "[" * (target and not inside) + "]" * (inside and not target)
        text += chat.tokenizer.decode([token]) if token is not None else ""
        inside = target
    return text


def test_every_turn_is_read_by_student_and_teacher_and_replies_are_learned(tmp_path: Path) -> None:
    chat = chat_of(tmp_path / "model", SMOLLM_2)
    [prompt] = prompts_of(tmp_path, {"messages": TURNS})
    opening = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n3 + 4?<|im_end|>\n<|im_start|>assistant\n"
    assert chat.tokenizer.decode(prompt.tokenized(chat).tokens) == (
        f"{opening}7<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert learned(chat, *prompt.as_conversation(chat)) == (
        f"{opening}[7<|im_end|>]\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n[Yes.<|im_end|>]"
    )
    shown = with_context_of(prompt, recipe("sdft").context, "sdft").tokenized(chat, recipe("sdft").template)
    assert shown.tokens == prompt.tokenized(chat).tokens
    teacher = chat.tokenizer.decode(shown.teacher_prompt)
    assert teacher.startswith(f"{opening}7<|im_end|>\n<|im_start|>user\nSure?\n\nHere is an example")
    assert "\nYes.\n" in teacher


def test_a_solution_leaves_the_system_prompt_and_the_tools_where_they_are(tmp_path: Path) -> None:
    chat = chat_of(tmp_path / "model", WITH_TOOLS)
    [prompt] = prompts_of(
        tmp_path, {"messages": TURNS[:2], "tools": TOOLS, "solution": "4 more than 3", "context": "C"}
    )
    for name in ("opsd", "opcd"):
        shown = with_context_of(prompt, recipe(name).context, name).tokenized(chat, recipe(name).template)
        bare, teacher = chat.tokenizer.decode(shown.tokens), chat.tokenizer.decode(shown.teacher_prompt)
        tools = '<|im_start|>system\n{"name": "sum"}<|im_end|>\n<|im_start|>system\nBe brief.'
        assert bare.startswith(f"{tools}<|im_end|>")
        assert teacher.startswith(f"{tools}\n\nC<|im_end|>" if name == "opcd" else f"{tools}<|im_end|>")


def test_calls_are_learned_and_their_results_are_not(tmp_path: Path) -> None:
    chat = chat_of(tmp_path / "model", WITH_TOOLS)
    [prompt] = prompts_of(tmp_path, CALLING)
    expected = (
        '<|im_start|>system\n{"name": "sum"}<|im_end|>\n<|im_start|>user\n3 + 4?<|im_end|>\n<|im_start|>assistant\n'
        f"[<tool_call>{FUNCTION}</tool_call><|im_end|>]\n<|im_start|>tool\n7<|im_end|>\n<|im_start|>assistant\n"
        "[It is 7.<|im_end|>]"
    )
    assert learned(chat, *prompt.as_conversation(chat)) == expected
    JsonLines(tmp_path / "stored.jsonl").write(read_training_file(tmp_path / "chats.jsonl"))
    [sample] = training_file_samples(tmp_path / "stored.jsonl", chat, str(tmp_path / "model"), 512)
    assert learned(chat, sample.tokens, sample.targets) == expected


def test_a_template_without_a_place_for_tools_is_named_and_empty_turns_are_not_learned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    [prompt] = prompts_of(tmp_path, CALLING)
    row = {"messages": [*prompt.messages, *prompt.reply], "tools": prompt.tools}
    warn_of_unread_tools([row], chat_of(tmp_path / "tools", WITH_TOOLS))
    assert not caplog.text
    chat = chat_of(tmp_path / "model", SMOLLM_2)
    warn_of_unread_tools([row], chat)
    assert "no place for tool calls and tools" in caplog.text
    text = learned(chat, *prompt.as_conversation(chat))
    assert text.endswith(
        "assistant\n<|im_end|>\n<|im_start|>tool\n7<|im_end|>\n<|im_start|>assistant\n[It is 7.<|im_end|>]"
    )


def test_where_a_template_rewrites_earlier_turns_the_last_reply_is_learned(tmp_path: Path) -> None:
    chat = load_chat(str(FAMILIES["qwen3"].save(tmp_path / "model")))
    [prompt] = prompts_of(tmp_path, {"messages": TURNS})
    text = learned(chat, *prompt.as_conversation(chat))
    assert text.endswith("assistant\n<think>\n\n</think>\n\n[Yes.<|im_end|>]")
    assert text.count("[") == text.count("<think>") == 1


def test_turns_that_the_template_refuses_are_named_by_their_row(tmp_path: Path) -> None:
    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('No system prompt.') }}{% endif %}" + SMOLLM_2
    chat = chat_of(tmp_path / "model", strict)
    prompts = prompts_of(tmp_path, {"prompt": "Hi"}, {"messages": TURNS})
    with pytest.raises(RecoverError, match=r"Line 2 of .*No system prompt"):
        check_prompts(prompts, Distill(recipe="opd", max_new_tokens=64), chat, str(tmp_path / "model"))


def test_a_prompt_that_leaves_no_room_for_a_reply_is_named_by_its_row(tmp_path: Path) -> None:
    chat, model = chat_of(tmp_path / "model", SMOLLM_2), str(tmp_path / "model")
    prompts = prompts_of(tmp_path, {"prompt": "Hi"}, {"prompt": "Why? " * 2000})
    check_prompts(prompts[:1], Distill(recipe="opd", max_new_tokens=100), chat, model)
    with pytest.raises(RecoverError, match=r"Line 2 of .*: the prompt of .* tokens and a reply of 100 exceed"):
        check_prompts(prompts, Distill(recipe="opd", max_new_tokens=100), chat, model)


def test_one_prompt_has_one_reward(tmp_path: Path) -> None:
    chat, model = chat_of(tmp_path / "model", SMOLLM_2), str(tmp_path / "model")
    same = [{"prompt": "3 + 4?", "answer": "7"}, {"prompt": "3 + 4?", "answer": "7"}]
    settings = Distill(recipe="grpo", max_new_tokens=64)
    check_prompts(prompts_of(tmp_path, *same), settings, chat, model)
    with pytest.raises(RecoverError, match=r"Line 2 of .* repeats a prompt with other checks"):
        check_prompts(
            prompts_of(tmp_path, same[0], {"prompt": "3 + 4?", "answer": "8"}),
            Distill(recipe="grpo", max_new_tokens=64),
            chat,
            model,
        )


def test_a_json_list_of_conversations_is_no_list_of_lines(tmp_path: Path) -> None:
    (tmp_path / "chats.json").write_text(json.dumps([CALLING, {"prompt": "Hi", "answer": 0}], indent=1))
    calling, short = read_prompts(tmp_path / "chats.json")
    assert [message["role"] for message in calling.messages] == ["user", "assistant", "tool"]
    assert (short.text, short.reply[0]["content"]) == ("Hi", "0")
    (tmp_path / "bad.json").write_text('["Hi"]')
    with pytest.raises(RecoverError, match="no list of objects"):
        read_prompts(tmp_path / "bad.json")
