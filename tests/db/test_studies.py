"""Studies in the record: the declaration first, then arms, then verdicts."""

from db.queries import Reader
from db.tracker import Tracker
from tests.db.seeded_study import add_study, arm, declaration


def test_a_study_is_stored_before_it_runs_and_found_again(tracker: Tracker, reader: Reader) -> None:
    project = tracker.project("handbook", "/home/ada/handbook", "lab")
    first = tracker.study(project, "length", "quick", "ab12", declaration())
    (stored,) = reader.studies(project)
    assert (stored.id, stored.hash, stored.results, stored.finished_at) == (first, "ab12", None, None)
    assert [claim["text"] for claim in stored.claims] == [claim["text"] for claim in declaration()["claims"]]
    assert tracker.study(project, "length", "quick", "ab12", {}) == first, "the first declaration stays"
    assert tracker.study(project, "length", "quick", "cd34", declaration()) != first, "a changed one is another study"
    assert reader.studies(project)[-1].declaration == declaration()


def test_arms_and_verdicts_are_stored_as_they_come(tracker: Tracker, reader: Reader) -> None:
    project = tracker.project("handbook", "/home/ada/handbook", "lab")
    study = tracker.study(project, "length", "quick", "ab12", declaration())
    before = reader.changes(project)
    tracker.store_study(study, {"arms": [arm("opd", 1, 0.8)], "planned": 2, "claims": []}, done=False)
    assert reader.changes(project) != before, "an open page shows it"
    unfinished = reader.study(study)
    assert unfinished is not None
    assert (list(unfinished.arms), unfinished.finished_at) == (["opd"], None)
    finished = reader.study(add_study(tracker, project))
    assert finished is not None
    assert finished.finished_at is not None
    assert [claim["verdict"] for claim in finished.claims] == ["supported", "refuted", "cannot tell"]
    assert [entry["seed"] for entry in finished.arms["opd"]] == [1, 2, 3]


def test_there_is_no_study_of_another_number(reader: Reader) -> None:
    assert reader.study(7) is None
