from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.synthetic.prompts import filter_prompts

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


@settings(deadline=None)
@given(st.lists(st.text()))
def test_filtering_twice_changes_nothing(prompts: list[str]) -> None:
    once = filter_prompts(prompts)
    assert filter_prompts(once) == once
