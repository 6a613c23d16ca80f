import random

import pytest

from evals.results import Item, Metric, Result
from pipelines.gate import judge
from pipelines.settings import Gate


def result(passes: list[bool], task: str = "ifeval", suite: str = "behaviour") -> Result:
    name = "prompt_level_strict_acc" if task == "ifeval" else "match"
    items = [Item(str(i), "", "", passed) for i, passed in enumerate(passes)]
    return Result(task, suite, "test", {name: Metric.of_passes(passes)}, items, {}, 0.0)


def drawn(rng: random.Random, n: int, rate: float) -> list[bool]:
    return [rng.random() < rate for _ in range(n)]


def test_the_same_answers_pass_and_a_clear_loss_does_not() -> None:
    passes = [True] * 180 + [False] * 20
    assert judge(Gate(), result(passes), result(passes), None, None).passed
    worse = judge(Gate(), result(passes), result([True] * 160 + [False] * 40), None, None)
    assert not worse.passed
    assert "short of the limit" in worse.reason


def test_too_few_items_never_pass_for_want_of_certainty_and_it_says_how_many_would_do() -> None:
    verdict = judge(Gate(), result([True] * 20), result([True] * 20), None, None)
    assert not verdict.passed
    assert verdict.behaviour.needed is not None
    assert verdict.behaviour.needed > 20
    assert f"about {verdict.behaviour.needed} would do" in verdict.reason


def test_a_model_six_points_worse_is_promoted_in_at_most_one_case_in_twenty() -> None:
    rng = random.Random(0)
    promoted = 0
    for _ in range(100):
        clean = drawn(rng, 200, 0.9)
        worse = [passed and rng.random() > 0.06 / 0.9 for passed in clean]
        promoted += judge(Gate(), result(clean), result(worse), None, None).passed
    assert promoted <= 5


def test_knowledge_must_be_kept_and_what_was_not_measured_is_said() -> None:
    same = result([True] * 200)
    known = result([True] * 90 + [False] * 10, "closed_book", "knowledge")
    assert judge(Gate(), same, same, known, 0.9).passed
    lost = judge(Gate(), same, same, known, 0.96)
    assert not lost.passed
    assert lost.knowledge is not None
    assert lost.knowledge.limit == pytest.approx(0.912)
    assert "only behaviour was judged" in judge(Gate(), same, same, None, None).reason
