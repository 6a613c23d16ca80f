import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.synthetic.prompts import count_kinds, filter_prompts, kind_of

LONG = " ".join(f"word{i}" for i in range(300))


def test_dropped_prompts_are_counted_by_reason() -> None:
    result = filter_prompts(
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
            "Nenne drei große Flüsse in Europa und beschreibe sie kurz.",
        ]
    )
    assert result.prompts == ["Name three rivers.", "今天天气怎么样", LONG, result.prompts[-1]]
    assert result.dropped == {
        "duplicate": 1,
        "too short": 1,
        "repeats itself": 1,
        "garbled": 1,
        "too long": 1,
        "near duplicate": 1,
    }


def test_prompts_can_be_limited_to_a_language() -> None:
    prompts = ["Please name three large rivers in Europe.", "Nenne drei große Flüsse in Europa und beschreibe sie."]
    assert filter_prompts(prompts).prompts == prompts
    assert filter_prompts([*prompts, "12 34 56"], "de").prompts == prompts[1:]


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("What is a lock?", "question"),
        ("why do ships have keels", "question"),
        ("Could you write a poem about locks?", "instruction"),
        ("Write a poem about locks.", "instruction"),
        ("Schreibe ein Gedicht.", "instruction"),
        ("Hello there!", "chat"),
        ("I had a long day.", "chat"),
    ],
)
def test_the_kind_of_a_prompt(prompt: str, kind: str) -> None:
    assert kind_of(prompt) == kind
    assert count_kinds([prompt])[kind] == 1


@settings(deadline=None)
@given(st.lists(st.text()))
def test_filtering_twice_changes_nothing(prompts: list[str]) -> None:
    once = filter_prompts(prompts)
    assert filter_prompts(once.prompts).prompts == once.prompts
    assert len(once.prompts) + once.dropped.total() == len(prompts)
