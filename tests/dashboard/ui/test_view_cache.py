"""Ten who look at the same page cost one look; what changed, or grew old, is looked at anew."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dashboard.pages import overview
from dashboard.ui import polling as follow
from dashboard.ui.view_cache import Kept
from tests.dashboard.looking import said, site
from tests.db.seeded import seed


def test_what_was_made_is_given_again_until_it_is_old():
    made = iter(range(10))
    kept, brief = Kept(), Kept(seconds=0.0)
    assert [kept.of("a", lambda: next(made)) for _ in range(2)] == [0, 0]
    assert kept.of("b", lambda: next(made)) == 1
    assert [brief.of("a", lambda: next(made)) for _ in range(2)] == [2, 3]


def test_those_who_ask_at_the_same_time_wait_for_the_one_who_makes_it():
    kept, made = Kept(), []
    first_is_at_it, others_may = threading.Event(), threading.Event()

    def make():
        made.append("one look")
        first_is_at_it.set()
        assert others_may.wait(30)
        return made[-1]

    with ThreadPoolExecutor(10) as viewers:
        first = viewers.submit(kept.of, "page", make)
        assert first_is_at_it.wait(30)
        others = [viewers.submit(kept.of, "page", make) for _ in range(8)]
        assert kept.of("another page", lambda: "at once") == "at once"
        time.sleep(0.2)  # time enough for the others to begin a look of their own, if they would
        others_may.set()
        assert [viewer.result(30) for viewer in (first, *others)] == ["one look"] * 9
    assert made == ["one look"]


def test_what_could_not_be_made_is_tried_again_by_the_next():
    kept = Kept()
    with pytest.raises(ZeroDivisionError):
        kept.of("page", lambda: 1 / 0)
    assert kept.of("page", lambda: "made") == "made"


def test_only_so_much_is_kept():
    kept = Kept(most=2)
    for key in "abc":
        kept.of(key, lambda: [key])  # noqa: B023
    assert kept.of("c", list) == ["c"]
    assert kept.of("a", lambda: ["anew"]) == ["anew"]


def test_a_second_viewer_is_told_the_same_without_the_record_being_read_for_it(told):
    tracker, reader = told
    seeded = seed(tracker, cycles=1)
    looks, shared = [], site(reader)

    def fill(asked):
        looks.append(asked.query)
        return overview.fill(asked)

    def look(search=""):
        return follow.refreshed(shared, "", 6, fill, follow.changes, None, said(search))

    first, second = look(), look()
    assert first == second
    assert len(looks) == 1
    look("?another=address")
    assert len(looks) == 2
    tracker.open_cycle(seeded.project)
    assert "Cycle 2 is under way" in look()[1]["value"]
