"""When the KL on replies speaks against a training."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from pipelines.watch.early_warning import LEAST, LIMIT, RISE, EarlyWarning
from pipelines.watch.probe_rows import Rows, WatchedModel


class Reply:
    """One whose KL is set by the test."""

    def __init__(self, kl: float = 0.0):
        self.value, self.looks = kl, 0

    def kl(self, model: Any) -> float:
        self.looks += 1
        return self.value


def early_warning(*replies: Reply) -> EarlyWarning:
    return EarlyWarning(cast(list[Rows], replies))


MODEL = cast(WatchedModel, SimpleNamespace(model=torch.nn.Linear(1, 1)))


def test_replies_are_looked_at_in_turn_and_a_small_rise_calls_for_nothing() -> None:
    replies = [Reply(0.9 * RISE * LIMIT) for _ in range(3)]
    early = early_warning(*replies)
    assert not any(early.has_risen(MODEL) for _ in range(6))
    assert [reply.looks for reply in replies] == [2, 2, 2]


def test_one_of_several_replies_is_enough() -> None:
    early = early_warning(Reply(), Reply(), Reply(RISE * LIMIT), Reply())
    assert [early.has_risen(MODEL, looks=2) for _ in range(4)] == [False, True, False, True]


def test_a_reply_is_compared_with_itself_at_the_last_reading() -> None:
    high, low = Reply(0.01), Reply(0.001)
    early = early_warning(high, low)
    assert early.has_risen(MODEL)
    assert early.read(1000, 0.0055, [0.01, 0.001]) == ""
    assert not early.has_risen(MODEL)
    assert not early.has_risen(MODEL), "this high one was as high in the reading"
    low.value += 1.1 * RISE * (LIMIT - 0.0055)
    assert [early.has_risen(MODEL) for _ in range(2)] == [True, False], "nearer to the limit a smaller rise is enough"


def test_the_limit_itself_is_a_finding() -> None:
    assert early_warning(Reply()).read(10, LIMIT, [LIMIT]) == "0.0075 per token (0.0075 is the limit)"


@pytest.mark.parametrize(
    ("before", "steps", "now", "is_found"),
    [
        (0.0, 5, 2 * LEAST, True),  # from nothing in five steps: ten times as much in five more
        (0.0, 500, 2 * LEAST, False),  # in five hundred
        (LEAST, 10, 1.1 * LEAST, False),
        (0.9 * LIMIT, 5, 0.99 * LIMIT, False),  # near the limit, but slowly
        (0.0, 1, 0.9 * LEAST, False),  # too little to tell
        (2 * LEAST, 5, LEAST, False),  # it falls
    ],
)
def test_fast_growth_is_a_finding_before_the_limit(before: float, steps: int, now: float, is_found: bool) -> None:
    early = early_warning(Reply())
    assert early.read(1000, before, [before]) == ""
    assert early.read(1000 + steps, now, [now]).endswith("passes the limit of 0.0075 within a few steps") == is_found
