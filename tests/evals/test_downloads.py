import time

import pytest

from evals import downloads as resources


def test_what_takes_too_long_is_done_without() -> None:
    started = time.perf_counter()
    assert resources.within(0.1, lambda: time.sleep(5)) is None
    assert time.perf_counter() - started < 1
    assert resources.within(5, lambda: 1 / 0) is None
    assert resources.within(5, lambda: 7) == 7


def test_a_hub_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    started = time.perf_counter()
    assert resources.public_ifeval() is None
    assert time.perf_counter() - started < 3


def test_the_splitter_is_punkt_or_plain() -> None:
    assert resources.ifeval_checkers()[1] in ("punkt_tab", "plain")
