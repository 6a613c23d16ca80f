import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.synthetic.prompt_filters import kind_of, kinds, tidied

LONG = " ".join(f"word{i}" for i in range(300))


def test_what_is_dropped_is_counted_by_its_reason() -> None:
    found = tidied(
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
    assert found.kept == ["Name three rivers.", "今天天气怎么样", LONG, found.kept[-1]]
    assert found.dropped == {
        "the same as another": 1,
        "too short": 1,
        "repeats itself": 1,
        "garbled": 1,
        "too long": 1,
        "nearly the same as another": 1,
    }


def test_a_language_is_kept_to_when_asked() -> None:
    prompts = ["Please name three large rivers in Europe.", "Nenne drei große Flüsse in Europa und beschreibe sie."]
    assert tidied(prompts).kept == prompts
    assert tidied([*prompts, "12 34 56"], "de").kept == prompts[1:]


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
    assert kinds([prompt])[kind] == 1


@settings(deadline=None)
@given(st.lists(st.text()))
def test_tidying_the_tidied_changes_nothing(prompts: list[str]) -> None:
    once = tidied(prompts)
    assert tidied(once.kept).kept == once.kept
    assert len(once.kept) + once.dropped.total() == len(prompts)
