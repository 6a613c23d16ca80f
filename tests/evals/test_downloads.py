import time

import pytest

from evals import downloads


def test_a_slow_or_failing_download_gives_none() -> None:
    started = time.perf_counter()
    assert downloads.run_with_timeout(0.1, lambda: time.sleep(5)) is None
    assert time.perf_counter() - started < 1
    assert downloads.run_with_timeout(5, lambda: 1 / 0) is None
    assert downloads.run_with_timeout(5, lambda: 7) == 7


def test_an_unreachable_hub_gives_none_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    started = time.perf_counter()
    assert downloads.public_ifeval() is None
    assert time.perf_counter() - started < 3
