import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dashboard.ui.caches import MAX_AGE, MAX_ENTRIES, ViewCache


def test_a_value_is_reused_until_it_is_old_from_the_time_at_which_it_was_ready(monkeypatch):
    now, values, cache = [0.0], iter(range(10)), ViewCache()
    monkeypatch.setattr("dashboard.ui.caches.time.monotonic", lambda: now[0])

    def slow():
        now[0] += 100.0
        return next(values)

    assert [cache.get("a", slow) for _ in range(2)] == [0, 0]
    assert cache.get("b", slow) == 1
    now[0] += MAX_AGE
    assert cache.get("b", slow) == 2


def test_concurrent_requests_wait_for_the_first():
    cache, calls = ViewCache(), []
    started, may_finish = threading.Event(), threading.Event()

    def compute():
        calls.append("computed")
        started.set()
        assert may_finish.wait(30)
        return calls[-1]

    with ThreadPoolExecutor(10) as viewers:
        first = viewers.submit(cache.get, "page", compute)
        assert started.wait(30)
        others = [viewers.submit(cache.get, "page", compute) for _ in range(8)]
        assert cache.get("another page", lambda: "at once") == "at once"
        time.sleep(0.2)  # enough time for the others to start their own computation, if they would
        may_finish.set()
        assert [viewer.result(30) for viewer in (first, *others)] == ["computed"] * 9
    assert calls == ["computed"]


def test_a_failed_computation_is_tried_again():
    cache = ViewCache()
    with pytest.raises(ZeroDivisionError):
        cache.get("page", lambda: 1 / 0)
    assert cache.get("page", lambda: "value") == "value"


def test_the_cache_is_bounded():
    cache = ViewCache()
    for key in range(MAX_ENTRIES + 1):
        cache.get(str(key), lambda: [key])  # noqa: B023
    assert cache.get("1", list) == [1]
    assert cache.get("0", lambda: ["again"]) == ["again"]
