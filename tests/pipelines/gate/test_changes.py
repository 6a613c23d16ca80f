"""The lines of a verdict on what was lost, what came back, and which kinds are lost now."""

from collections.abc import Sequence

from db.verdict_lines import measure_lines
from evals.results import Item, Metric, Result
from pipelines.gate.verdict import behaviour_changes, judge
from pipelines.settings.schema import Gate

KINDS = ("length_constraints:number_words", "punctuation:no_comma")


def result(passes: Sequence[bool]) -> Result:
    items = [
        Item(str(i), "", "", passed, {"instructions": [KINDS[i % 3 > 0]], "strict": [passed]})
        for i, passed in enumerate(passes)
    ]
    metrics = {"prompt_level_strict_acc": Metric.from_passes(list(passes))}
    return Result("ifeval", "behaviour", "test", metrics, items, {}, 0.0)


def test_it_says_what_came_back_what_flipped_and_of_which_kind() -> None:
    clean = result([True] * 90 + [False] * 10)
    damaged = result([False] * 30 + [True] * 60 + [False] * 10)
    recovered = result([False] * 6 + [True] * 84 + [True, *[False] * 9])
    lines = behaviour_changes(clean, damaged, recovered)
    assert lines == (
        "of 90 prompts that the clean model followed, 30 were lost before; 24 of these are regained",
        "7 of 100 verdicts differ from the clean model's: "
        "6 lost, most often punctuation (4) and length_constraints (2); 1 gained",
    )
    verdict = judge(Gate(), clean, recovered, damaged=damaged)
    assert measure_lines(verdict.as_dict())[0].details[-2:] == lines


def test_what_only_the_last_step_lost_is_counted_apart() -> None:
    clean, damaged = result([True] * 20), result([False] * 5 + [True] * 15)
    first, *_ = behaviour_changes(clean, damaged, result([True] * 4 + [False] * 3 + [True] * 13))
    assert first.endswith(
        "20 prompts that the clean model followed, 5 were lost before; 4 of these are regained, 2 others lost"
    )


def test_without_a_change_there_is_nothing_to_say() -> None:
    same = result([True] * 20)
    assert behaviour_changes(same, same, same) == ()
    assert behaviour_changes(same, None, same) == ()


def test_what_came_back_is_counted_on_the_prompts_that_all_three_were_asked() -> None:
    clean, damaged = result([True] * 100), result([False] * 10 + [True] * 10)
    assert behaviour_changes(clean, damaged, result([True] * 50)) == (
        "of 20 prompts that the clean model followed, 10 were lost before; 10 of these are regained",
    )
