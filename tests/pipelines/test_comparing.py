from evals.results import Item, Metric, Result
from pipelines.comparing import compared


def result(task: str, passes: list[bool], data: str = "d") -> Result:
    items = [Item(str(i), "", "", p) for i, p in enumerate(passes)]
    return Result(task, "behaviour", data, {"m": Metric.of_passes(passes)}, items, {}, 0.0)


def test_only_what_both_were_measured_by_is_compared_item_by_item() -> None:
    one = [result("ifeval", [True] * 30 + [False] * 10), result("refusals", [True])]
    other = [result("ifeval", [True] * 18 + [False] * 12 + [True] * 2 + [False] * 8), result("ifeval", [True], "else")]
    (found,) = compared(one, other)
    assert (found.one, found.other) == (0.75, 0.5)
    shown = found.as_json()
    assert (shown["lost"], shown["gained"], shown["n"]) == (12, 2, 40)
    assert shown["difference"] == -0.25
    assert shown["p_value"] < 0.05
    assert "could be chance" not in found.line()
    assert "could be chance" in compared(one, one)[0].line()
