from typing import Any

import pytest

from db.queries import Reader
from db.tables import Headline
from db.tracker import Tracker
from evals.stats.paired_comparison import wilson

BITS = "bits_per_byte"


def _record(
    tracker: Tracker, checkpoint: int, run: int | None, task: str, metric: str, value: float, **more: Any
) -> None:
    result = {"task": task, "suite": "knowledge", "data": "passages", "seconds": 1.0}
    settings = {"lower_is_better": True} if metric == BITS else {}
    metrics = {metric: {"value": value, "n": 100}}
    tracker.evaluation(checkpoint, run, result | {"settings": settings, "metrics": metrics} | more)


def test_bits_per_byte_are_never_the_headline_of_knowledge(
    reader: Reader, tracker: Tracker, project: int, base: int
) -> None:
    _record(tracker, base, tracker.start_run(project, "eval"), "passages", BITS, 1.7)
    assert reader.stages(project)[0].scores == {}
    run = tracker.start_run(project, "eval")
    for task, metric, value in (("cloze", "recall", 0.25), ("passages", BITS, 1.7)):
        _record(tracker, base, run, task, metric, value)
    _record(tracker, base, tracker.start_run(project, "eval"), "passages", BITS, 1.6)
    headline = reader.stages(project)[0].scores["knowledge"]
    assert (headline.task, headline.value) == ("cloze", 0.25)


@pytest.mark.parametrize("suite", ["knowledge", "retention"])
@pytest.mark.parametrize("metrics", [("word_perplexity", BITS), ("brier_score",), ("toxicity", "score")])
def test_a_task_of_which_less_is_better_has_no_score(
    reader: Reader, tracker: Tracker, project: int, base: int, suite: str, metrics: tuple[str, ...]
) -> None:
    """As `evals.results.headlines`, which the commands print."""
    values = {name: {"value": 0.5, "n": 100} for name in metrics}
    run = tracker.start_run(project, "eval")
    lower = {"lower_is_better": True}
    _record(tracker, base, run, "wikitext", "", 0, suite=suite, metrics=values, settings=lower)
    assert reader.stages(project)[0].scores == {}
    _record(tracker, base, run, "cloze", "recall", 0.25, suite=suite)
    assert reader.stages(project)[0].scores[suite].task == "cloze"


def test_tasks_of_earlier_cycles_are_pooled_whatever_was_stored_between_them(
    reader: Reader, tracker: Tracker, project: int, base: int
) -> None:
    run = tracker.start_run(project, "eval")
    _record(tracker, base, run, "cycle:1", "match", 0.9, suite="earlier")
    _record(tracker, base, run, "closed_book", "match", 0.4)
    _record(tracker, base, run, "cycle:2", "match", 0.5, suite="earlier")
    scores = reader.stages(project)[0].scores
    assert (scores["earlier"].value, scores["earlier"].n) == (0.7, 200)
    assert scores["knowledge"].value == 0.4


def test_earlier_cycles_that_were_measured_before_an_interruption_count(
    reader: Reader, tracker: Tracker, project: int, base: int
) -> None:
    for task, value in (("cycle:1", 0.9), ("cycle:2", 0.5)):
        _record(tracker, base, tracker.start_run(project, "eval"), task, "match", value, suite="earlier")
    earlier = reader.stages(project)[0].scores["earlier"]
    assert (earlier.value, earlier.n) == (0.7, 200)


def test_a_cycle_shows_the_clean_score_that_it_used_and_not_a_later_one(
    reader: Reader, tracker: Tracker, project: int, base: int
) -> None:
    """The second cycle takes the first one's; what was measured by hand, or on the items of probes, is neither's."""
    for _ in range(2):
        tracker.open_cycle(project, tracker.corpus("/docs", "ab" * 32))
    first, second = (cycle.id for cycle in reader.cycles(project))
    probe = {"part": "probe"}
    for cycle, value, settings in ((first, 0.8, {}), (None, 0.5, {}), (second, 0.6, probe)):
        run = tracker.start_run(project, "eval", cycle)
        _record(tracker, base, run, "ifeval", "match", value, suite="behaviour", settings=settings)
    assert [cycle.clean.scores["behaviour"].value for cycle in reader.cycles(project)] == [0.8, 0.8]
    assert [evaluation.cycle for evaluation in reader.evaluations(base)] == [1, None, 2]


@pytest.mark.parametrize("data", [("public", "lab-natural"), ("house.jsonl", "house.jsonl")])
def test_a_clean_score_is_of_the_data_that_the_cycle_used(
    reader: Reader, tracker: Tracker, project: int, base: int, data: tuple[str, str]
) -> None:
    """The third cycle is measured as the first was, so it takes the first one's clean score over."""
    for which, clean in ((0, 0.5), (1, 0.9), (0, None)):
        cycle = tracker.open_cycle(project).id
        run = tracker.start_run(project, "midtrain", cycle)
        student = tracker.checkpoint(project, "midtrained", f"/{run}", parent=base, run=run, cycle=cycle)
        for checkpoint, value in ((base, clean), (student, 0.4)):
            if value is not None:
                content = {"content": f"hash {which}"}
                _record(
                    tracker, checkpoint, run, "ifeval", "match", value,
                    suite="behaviour", data=data[which], settings=content,
                )  # fmt: skip
    assert [cycle.clean.scores["behaviour"].value for cycle in reader.cycles(project)] == [0.5, 0.9, 0.5]


def test_the_headline_of_own_tasks_is_pooled_over_their_first_metrics(
    reader: Reader, tracker: Tracker, project: int, base: int
) -> None:
    metrics = {name: {"value": value, "n": 10} for name, value in (("zeal", 0.5), ("acc", 0.9))}

    def headline(*tasks: str) -> Headline:
        run = tracker.start_run(project, "eval")
        for task in tasks:
            _record(tracker, base, run, task, "", 0, suite="retention", metrics=metrics)
        return reader.stages(project)[0].scores["retention"]

    assert headline("old").task == "old"
    pooled = headline("gsm8k", "mmlu")
    assert (pooled.task, pooled.value, pooled.n) == ("gsm8k, mmlu", 0.5, 20)
    assert (pooled.low, pooled.high) == pytest.approx(wilson(10, 20))
    _record(tracker, base, None, "arithmetic", "match", 0.75, suite="retention")
    assert reader.stages(project)[0].scores["retention"].task == "arithmetic", "the latest, of no run"
    assert headline("gsm8k").task == "gsm8k"


def test_graded_tasks_are_left_out_of_a_pooled_headline(
    reader: Reader, tracker: Tracker, project: int, base: int
) -> None:
    run = tracker.start_run(project, "eval")
    for task, value, n in (("squad", 0.333, 50), ("arithmetic", 1.0, 30), ("own_world", 0.2, 10)):
        _record(tracker, base, run, task, "", 0, suite="retention", metrics={"match": {"value": value, "n": n}})
    score = reader.stages(project)[0].scores["retention"]
    assert (score.task, score.n, score.value) == ("arithmetic, own_world", 40, pytest.approx(32 / 40))
