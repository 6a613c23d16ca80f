from db.headline_scores import BITS
from db.queries import Reader
from db.tracker import Tracker


def _record(tracker: Tracker, checkpoint: int, run: int, task: str, metric: str, value: float) -> None:
    result = {"task": task, "suite": "knowledge", "data": "passages", "seconds": 1.0}
    tracker.evaluation(checkpoint, run, result | {"metrics": {metric: {"value": value, "n": 40}}})


def test_bits_per_byte_are_never_the_headline_of_knowledge(reader: Reader, tracker: Tracker, project: int) -> None:
    base = tracker.checkpoint(project, "base", "/models/lab")
    _record(tracker, base, tracker.start_run(project, "eval"), "passages", BITS, 1.7)
    assert reader.stages(project)[0].scores == {}
    run = tracker.start_run(project, "eval")
    for task, metric, value in (("cloze", "recall", 0.25), ("passages", BITS, 1.7)):
        _record(tracker, base, run, task, metric, value)
    _record(tracker, base, tracker.start_run(project, "eval"), "passages", BITS, 1.6)
    headline = reader.stages(project)[0].scores["knowledge"]
    assert (headline.task, headline.value) == ("cloze", 0.25)


def _pass_rate(tracker: Tracker, checkpoint: int, run: int | None, suite: str, task: str, passed: int, n: int) -> None:
    result = {"task": task, "suite": suite, "data": "q", "seconds": 1.0, "settings": {}}
    tracker.evaluation(checkpoint, run, result | {"metrics": {"match": {"value": passed / n, "n": n}}})


def test_tasks_of_earlier_cycles_are_pooled_whatever_was_stored_between_them(
    reader: Reader, tracker: Tracker, project: int
) -> None:
    base = tracker.checkpoint(project, "base", "/models/lab")
    run = tracker.start_run(project, "eval")
    _pass_rate(tracker, base, run, "earlier", "cycle:1", 90, 100)
    _pass_rate(tracker, base, run, "knowledge", "closed_book", 40, 100)
    _pass_rate(tracker, base, run, "earlier", "cycle:2", 50, 100)
    scores = reader.stages(project)[0].scores
    assert (scores["earlier"].value, scores["earlier"].n) == (0.7, 200)
    assert scores["knowledge"].value == 0.4


def test_a_cycle_shows_the_clean_score_that_it_used_and_not_a_later_one(
    reader: Reader, tracker: Tracker, project: int
) -> None:
    """The second cycle takes the first one's; what was measured by hand, or on the items of probes, is neither's."""
    base = tracker.checkpoint(project, "base", "/models/lab")
    for _ in range(2):
        tracker.open_cycle(project, tracker.corpus("/docs", "ab" * 32, 1, 100))
    first, second = (cycle.id for cycle in reader.cycles(project))
    _pass_rate(tracker, base, tracker.start_run(project, "eval", first), "behaviour", "ifeval", 80, 100)
    _pass_rate(tracker, base, tracker.start_run(project, "eval"), "behaviour", "ifeval", 5, 10)
    probe = {"task": "ifeval", "suite": "behaviour", "data": "q", "seconds": 1.0, "settings": {"part": "probe"}}
    metrics = {"metrics": {"match": {"value": 0.6, "n": 60}}}
    tracker.evaluation(base, tracker.start_run(project, "eval", second), probe | metrics)
    assert [cycle.clean.scores["behaviour"].value for cycle in reader.cycles(project)] == [0.8, 0.8]
    assert [evaluation.cycle for evaluation in reader.evaluations(base)] == [1, None, 2]
