import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.context_templates import SYSTEM_PROMPT, check_template, with_context
from recovery.errors import RecoverError

TEXT = st.text(max_size=30)
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    {"role": "tool", "content": "3"},
    {"role": "user", "content": "Two?"},
]


def test_the_last_user_turn_holds_prompt_and_context() -> None:
    shown = with_context(TURNS, "{prompt} ({context})", "a hint")
    assert shown[-1] == {"role": "user", "content": "Two? (a hint)"}
    assert shown[:-1] == TURNS[:-1]


def test_a_system_part_joins_the_system_prompt_or_becomes_one() -> None:
    joined = with_context(TURNS, SYSTEM_PROMPT, "Speak French.")
    assert joined == [{"role": "system", "content": "Be brief.\n\nSpeak French."}, *TURNS[1:]]
    new = with_context(TURNS[-1:], SYSTEM_PROMPT, "Speak French.")
    assert new == [{"role": "system", "content": "Speak French."}, TURNS[-1]]


@given(TEXT, TEXT)
def test_braces_in_texts_are_no_fields(prompt: str, context: str) -> None:
    turns = [{"role": "user", "content": prompt + "{context}"}]
    shown = with_context(turns, "{context}|{prompt}", context + "{prompt}")
    assert shown[0]["content"] == f"{context}{{prompt}}|{prompt}{{context}}"
    assert turns[0]["content"] == prompt + "{context}"


@pytest.mark.parametrize(
    "template",
    [
        "",
        "{prompt}",
        "{context}",
        "<system>{prompt}{context}<user>",
        "{prompt} {text}",
        "<system>{prompt} {context}<user>{prompt}",
    ],
)
def test_a_template_without_both_fields_is_refused(template: str) -> None:
    with pytest.raises(RecoverError, match=r"must contain \{prompt\} and \{context\}"):
        check_template(template)
