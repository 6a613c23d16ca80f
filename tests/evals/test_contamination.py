from hypothesis import given
from hypothesis import strategies as st

from evals.contamination import remove_contaminated

ITEM = "Write a short story about a lighthouse keeper who finds a letter in a bottle on a cold winter morning."


def test_an_item_in_disguise_is_dropped_and_what_it_shares_is_told() -> None:
    disguised = "Please: write a short story about a LIGHTHOUSE keeper, who finds a letter in a bottle on a cold day."
    other = "Write a short story about a baker who finds a coin in a loaf of bread on a warm summer evening."
    found = remove_contaminated([disguised, other], [ITEM])
    assert found.kept == [other]
    [leak] = found.leaks
    assert leak.prompt == disguised
    assert leak.shared == "write short story about lighthouse keeper who finds letter in bottle on cold"


def test_a_short_prompt_leaks_only_as_a_whole() -> None:
    items = ["What is 2 + 3?", "Tell me what is 2 + 4. Use no commas at all in your answer please, thank you."]
    found = remove_contaminated(["what is 2 + 4?", "what is 2+3"], items)
    assert found.kept == ["what is 2 + 4?"]


def test_the_order_is_kept_and_nothing_is_lost() -> None:
    found = remove_contaminated(["one", ITEM, "two", ITEM, ""], [ITEM])
    assert found.kept == ["one", "two", ""]
    assert len(found.leaks) == 2


letters = st.lists(st.sampled_from("bcdefg"), max_size=8)


@given(st.lists(letters, max_size=5), st.lists(letters, max_size=5), st.integers(1, 4))
def test_it_is_what_looking_at_every_run_finds(prompts: list[list[str]], items: list[list[str]], run: int) -> None:
    def shares(prompt: list[str]) -> bool:
        length = min(run, len(prompt))
        for item in items:
            if length and min(run, len(item)) == length:
                for i in range(len(prompt) - length + 1):
                    if any(prompt[i : i + length] == item[j : j + length] for j in range(len(item) - length + 1)):
                        return True
        return False

    found = remove_contaminated([" ".join(p) for p in prompts], [" ".join(i) for i in items], run)
    assert found.kept == [" ".join(p) for p in prompts if not shares(p)]
