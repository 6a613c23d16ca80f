import math

from db.verdict_lines import losses, measure_lines

FOLLOWS = {"passed": False, "unsure": False, "value": -0.01, "bound": -0.0302, "limit": -0.03, "before": 0.5, "n": 500}
KNOWS = {"passed": False, "unsure": False, "value": 0.9258, "bound": 0.9258, "limit": 0.9262, "before": 0.1, "n": 90}


def test_differences_are_shown_as_scores_and_the_bound_with_enough_decimals_to_see_that_it_fails() -> None:
    following, knowledge = measure_lines({"behaviour": FOLLOWS, "knowledge": KNOWS})
    assert following[1:8] == ("instruction following", False, "missed", "0.500", "0.490", "0.4698", "0.4700")
    assert knowledge[1:8] == ("new knowledge", False, "missed", "0.100", "0.9258", "", "0.9262")
    passed = FOLLOWS | {"passed": True, "bound": -0.0298}
    assert measure_lines({"behaviour": passed})[0][3:8] == ("met", "0.500", "0.490", "0.470", "0.470")


def test_of_several_earlier_cycles_the_one_with_the_least_left_is_shown() -> None:
    met = KNOWS | {"passed": True, "value": 0.9, "limit": 0.5}
    near = KNOWS | {"passed": True, "value": 0.52, "limit": 0.51}
    earlier = measure_lines({"behaviour": FOLLOWS, "earlier": {"1": met, "2": near}})[1]
    assert (earlier.name, earlier.after, earlier.word) == ("earlier cycles (cycle 2 of 2)", "0.520", "met")
    missed = KNOWS | {"value": 0.89, "limit": 0.9}
    earlier = measure_lines({"behaviour": FOLLOWS, "earlier": {"1": missed, "2": near}})[1]
    assert (earlier.name, earlier.word) == ("earlier cycles (cycle 1 of 2)", "missed")
    assert measure_lines({"behaviour": FOLLOWS, "earlier": {"4": met}})[1].name == "earlier cycles"
    assert len(measure_lines({"behaviour": FOLLOWS, "earlier": {}})) == 1


def test_a_score_that_is_no_number_is_not_judged() -> None:
    unknown = KNOWS | {"value": None, "bound": None}
    lines = measure_lines({"behaviour": FOLLOWS, "knowledge": unknown, "earlier": {"1": unknown}})
    assert [(line.word, len(line.details)) for line in lines] == [("missed", 1), ("not judged", 0)]
    before_it_is_stored = measure_lines({"knowledge": KNOWS | {"value": math.nan, "bound": math.nan}})
    assert [line.word for line in before_it_is_stored] == ["not judged"]
    assert "--questions" in measure_lines({"behaviour": FOLLOWS, "knowledge": None})[1].details[0]


def test_only_tasks_that_lost_more_than_they_gained_are_named() -> None:
    changes = {"sums": (3, 1), "world": (106, 0), "same": (4, 4), "better": (0, 2)}
    tasks = {task: {"lost": lost, "gained": gained} for task, (lost, gained) in changes.items()}
    assert losses(tasks) == ["world: 106 lost, none gained", "sums: 3 lost, 1 gained"]
