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
