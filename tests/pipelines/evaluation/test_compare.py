import math
from dataclasses import replace

import pytest

from evals.results import Result, headlines
from pipelines.evaluation.compare import compare_results, mean_forgetting, mean_lines
from tests.evals.fakes import graded, result


def test_only_tasks_that_both_were_measured_on_are_compared() -> None:
    one = [result([True] * 30 + [False] * 10), result([True], "refusals")]
    other = [result([True] * 18 + [False] * 12 + [True] * 2 + [False] * 8), replace(result([True]), data="else")]
    (comparison,) = compare_results(one, other)
    assert (comparison.first, comparison.second) == (0.75, 0.5)
    as_json = comparison.as_json()
    assert (as_json["lost"], as_json["gained"], as_json["n"]) == (12, 2, 40)
    assert as_json["difference"] == -0.25
    assert as_json["p_value"] < 0.05
    assert "may be chance" not in comparison.lines()[0]
    assert "may be chance" in compare_results(one, one)[0].lines()[0]


def test_a_file_under_another_name_has_the_same_questions() -> None:
    one = replace(result([True, False]), data="a.jsonl", settings={"content": "ab"})
    renamed, other = replace(one, data="b.jsonl"), replace(one, settings={"content": "cd"})
    (comparison,) = compare_results([one], [renamed], [renamed])
    assert (comparison.pair.n, comparison.clean) == (2, 0.5)
    assert compare_results([one], [other]) == []


def test_forgetting_and_the_recovered_share_are_relative_to_the_clean_model() -> None:
    clean, damaged = result([True] * 36 + [False] * 4), result([True] * 16 + [False] * 24)
    recovered = result([True] * 31 + [False] * 9)
    comparisons = compare_results([damaged], [recovered], [clean])
    as_json = comparisons[0].as_json()
    assert as_json["clean"] == 0.9
    assert as_json["forgetting"] == {"first": pytest.approx(0.5), "second": pytest.approx(0.125), "n": 40}
    assert as_json["retention"] == {"first": pytest.approx(16 / 36), "second": pytest.approx(31 / 36)}
    assert as_json["recovered"]["value"] == pytest.approx(15 / 20)
    assert "0.75" in comparisons[0].lines()[1]
    means = mean_forgetting(comparisons)
    assert means["forgetting"] == {"first": pytest.approx(0.5), "second": pytest.approx(0.125)}
    assert means["retention"] == as_json["retention"]
    assert "0.500 → 0.125, retained 0.444 → 0.861" in mean_lines(means)[0]


def test_the_means_are_over_tasks_and_a_score_of_zero_before_has_no_retention() -> None:
    def measured(passes: dict[str, list[bool]]) -> list[Result]:
        return [result(passed, task) for task, passed in passes.items()]

    clean = measured({"a": [True] * 4, "b": [True] * 2, "none": [False] * 2})
    first = measured({"a": [True] * 3 + [False], "b": [True, False], "none": [True, False]})
    means = mean_forgetting(compare_results(first, clean, clean))
    assert means["forgetting"] == {"first": pytest.approx((0.25 + 0.5 - 0.5) / 3), "second": 0.0}
    assert means["retention"] == {"first": pytest.approx((0.75 + 0.5) / 2), "second": 1.0}
    means = mean_forgetting(compare_results(first[2:], first[2:], clean))
    assert means["retention"] == {"first": None, "second": None}


def test_without_the_clean_model_forgetting_is_unknown() -> None:
    one = result([True, False])
    comparisons = compare_results([one], [one], [replace(result([True, True]), data="else")])
    as_json = comparisons[0].as_json()
    assert (as_json["clean"], as_json["forgetting"], as_json["recovered"]) == (None, None, None)
    assert len(comparisons[0].lines()) == 1
    assert mean_forgetting(comparisons) == {"forgetting": None, "retention": None}
    assert mean_lines(mean_forgetting(comparisons)) == []


def test_knowledge_of_the_new_documents_cannot_be_forgotten() -> None:
    knowledge = result([True, False], "closed_book", "knowledge")
    comparisons = compare_results([knowledge], [knowledge], [knowledge])
    assert (comparisons[0].clean, comparisons[0].forgetting) == (0.5, None)


def test_without_a_loss_there_is_no_recovered_share() -> None:
    same = result([True, False])
    (comparison,) = compare_results([same], [same], [same])
    assert math.isnan(comparison.forgetting.recovered.value)
    assert comparison.as_json()["recovered"] is None
    assert "recovered" not in comparison.lines()[1]


def test_graded_items_are_not_counted_as_lost_or_gained() -> None:
    without_grades = result([False] * 40).items
    one, other, clean = (replace(graded([grade] * 40), items=without_grades) for grade in (0.2, 0.5, 0.8))
    (comparison,) = compare_results([one], [other], [clean])
    as_json = comparison.as_json()
    assert as_json["difference"] == pytest.approx(0.3)
    assert [as_json[name] for name in ("bounds", "lost", "gained", "p_value", "recovered")] == [None] * 5
    assert as_json["forgetting"] == {"first": pytest.approx(0.6), "second": pytest.approx(0.3), "n": 40}
    assert "grades instead of passes" in comparison.lines()[0]
    assert "lost 0" not in comparison.lines()[0]
    assert "recovered" not in comparison.lines()[1]


def test_the_clean_score_is_on_the_items_of_the_others() -> None:
    clean = result([True] * 20 + [False] * 20)
    first, second = result([True] * 20 + [False] * 20), result([True] * 10)
    (comparison,) = compare_results([first], [second], [clean])
    assert (comparison.clean, comparison.first, comparison.second) == (1.0, 1.0, 1.0)


def test_a_perplexity_is_no_share_that_could_be_forgotten() -> None:
    clean, worse = (
        replace(graded([value] * 3, "wikitext", "retention", "word_perplexity"), settings={"lower_is_better": True})
        for value in (18.0, 54.0)
    )
    assert headlines([worse])["retention"] is None
    (comparison,) = compare_results([worse], [worse], [clean])
    assert comparison.forgetting is None
