from hypothesis import given
from hypothesis import strategies as st

from evals.contamination import remove_contaminated

ITEM = "Write a short story about a lighthouse keeper who finds a letter in a bottle on a cold winter morning."


def test_a_reworded_item_is_removed_and_the_shared_run_reported() -> None:
    reworded = "Please: write a short story about a LIGHTHOUSE keeper, who finds a letter in a bottle on a cold day."
    other = "Write a short story about a baker who finds a coin in a loaf of bread on a warm summer evening."
    result = remove_contaminated([reworded, other], [ITEM])
    assert result.clean == [other]
    shared = "write short story about lighthouse keeper who finds letter in bottle on cold"
    assert result.contaminated == {reworded: shared}


def test_a_short_prompt_is_contaminated_only_as_a_whole() -> None:
    items = ["What is 2 + 3?", "Tell me what is 2 + 4. Use no commas at all in your answer please, thank you."]
    result = remove_contaminated(["what is 2 + 4?", "what is 2+3"], items)
    assert result.clean == ["what is 2 + 4?"]


def test_a_copy_in_a_script_without_spaces_is_removed() -> None:
    item = "请写一个短篇故事，讲述一位灯塔看守人在寒冷的冬日早晨发现瓶中信的经历。"
    copy, other = "好的。" + item.replace("短篇", ""), "请写一个短篇故事，讲述一位面包师在炎热的夏夜里发现硬币的经历。"
    result = remove_contaminated([copy, other], [item])
    assert result.clean == [other]
    assert list(result.contaminated) == [copy]


letters = st.lists(st.sampled_from("bcdefg"), max_size=8)


@given(st.lists(letters, max_size=5), st.lists(letters, max_size=5), st.integers(1, 4))
def test_the_result_equals_a_brute_force_search(prompts: list[list[str]], items: list[list[str]], run: int) -> None:
    def shares(prompt: list[str]) -> bool:
        length = min(run, len(prompt))
        for item in items:
            if length and min(run, len(item)) == length:
                for i in range(len(prompt) - length + 1):
                    if any(prompt[i : i + length] == item[j : j + length] for j in range(len(item) - length + 1)):
                        return True
        return False

    result = remove_contaminated([" ".join(p) for p in prompts], [" ".join(i) for i in items], run)
    assert result.clean == [" ".join(p) for p in prompts if not shares(p)]
