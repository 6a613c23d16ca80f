import math
from dataclasses import replace

import pytest

from evals.results import Item, Metric, Result
from pipelines.evaluation.compare import compared, in_words, means


def result(task: str, passes: list[bool], data: str = "d") -> Result:
    items = [Item(str(i), "", "", p) for i, p in enumerate(passes)]
    return Result(task, "behaviour", data, {"m": Metric.from_passes(passes)}, items, {}, 0.0)


def test_only_what_both_were_measured_by_is_compared_item_by_item() -> None:
    one = [result("ifeval", [True] * 30 + [False] * 10), result("refusals", [True])]
    other = [result("ifeval", [True] * 18 + [False] * 12 + [True] * 2 + [False] * 8), result("ifeval", [True], "else")]
    (found,) = compared(one, other)
    assert (found.one, found.other) == (0.75, 0.5)
    shown = found.as_json()
    assert (shown["lost"], shown["gained"], shown["n"]) == (12, 2, 40)
    assert shown["difference"] == -0.25
    assert shown["p_value"] < 0.05
    assert "could be chance" not in found.lines()[0]
    assert "could be chance" in compared(one, one)[0].lines()[0]


def test_what_was_forgotten_of_the_clean_base_and_what_came_back() -> None:
    clean, damaged = result("ifeval", [True] * 36 + [False] * 4), result("ifeval", [True] * 16 + [False] * 24)
    recovered = result("ifeval", [True] * 31 + [False] * 9)
    found = compared([damaged], [recovered], [clean])
    shown = found[0].as_json()
    assert shown["clean"] == 0.9
    assert shown["forgetting"] == {"one": pytest.approx(0.5), "other": pytest.approx(0.125), "n": 40}
    assert shown["retention"] == {"one": pytest.approx(16 / 36), "other": pytest.approx(31 / 36)}
    assert shown["recovered"]["value"] == pytest.approx(15 / 20)
    assert "0.75" in found[0].lines()[1]
    told = means(found)
    assert told["forgetting"] == {"one": pytest.approx(0.5), "other": pytest.approx(0.125)}
    assert told["retention"] == shown["retention"]
    assert "0.500 → 0.125, retained 0.444 → 0.861" in in_words(told)[0]


def test_without_the_clean_base_nothing_is_said_of_forgetting() -> None:
    one = result("ifeval", [True, False])
    found = compared([one], [one], [result("ifeval", [True, True], "else")])
    shown = found[0].as_json()
    assert (shown["clean"], shown["forgetting"], shown["recovered"]) == (None, None, None)
    assert len(found[0].lines()) == 1
    assert means(found) == {"forgetting": None, "retention": None}
    assert in_words(means(found)) == []


def test_knowledge_of_the_new_documents_is_not_forgotten_by_the_clean_base() -> None:
    known = replace(result("closed_book", [True, False]), suite="knowledge")
    found = compared([known], [known], [known])
    assert (found[0].clean, found[0].forgot) == (0.5, None)


def test_where_nothing_was_lost_no_share_of_it_came_back() -> None:
    same = result("ifeval", [True, False])
    (found,) = compared([same], [same], [same])
    assert found.forgot is not None
    assert math.isnan(found.forgot.recovered.value)
    assert found.as_json()["recovered"] is None
    assert "came back" not in found.lines()[1]


def test_of_graded_items_none_is_called_lost_or_gained() -> None:
    one, other, clean = (
        replace(result("f1", [False] * 40), metrics={"f1": Metric.from_values([grade] * 40)})
        for grade in (0.2, 0.5, 0.8)
    )
    (found,) = compared([one], [other], [clean])
    shown = found.as_json()
    assert shown["difference"] == pytest.approx(0.3)
    assert [shown[name] for name in ("bounds", "lost", "gained", "p_value", "recovered")] == [None] * 5
    assert shown["forgetting"] == {"one": pytest.approx(0.6), "other": pytest.approx(0.3), "n": 40}
    assert "graded, not passed or failed" in found.lines()[0]
    assert "lost 0" not in found.lines()[0]
    assert "came back" not in found.lines()[1]
