import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.synthetic.prompts import filter_prompts, kind_of

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
            "Nenne drei große Flüsse in Europa und beschreibe sie kurz.",
        ]
    )
    assert kept == ["Name three rivers.", "今天天气怎么样", LONG, kept[-1]]
    assert kept[-1].startswith("Nenne drei")


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


@settings(deadline=None)
@given(st.lists(st.text()))
def test_filtering_twice_changes_nothing(prompts: list[str]) -> None:
    once = filter_prompts(prompts)
    assert filter_prompts(once) == once
