"""Seconds of a stage from rates and quantities."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.counting_engine import Replies, Workload
from pipelines.estimates.work import Generating, Loading, Measuring, StageWork, Training, longest_reply, mean_length
from pipelines.machine.calibration import Rates

RATES = Rates(
    load=2.0,
    step=0.1,
    label_token=0.001,
    taught_token=0.002,
    scored_token=0.0005,
    decode_pass=0.01,
    written_token=0.0001,
    open_engine=3.0,
    ends={"reply": 0.05},
)


def test_a_step_costs_its_tokens_and_an_update() -> None:
    assert Training(10, 1000, 500).seconds(RATES) == pytest.approx(10 * (0.1 + 1.0 + 1.0))
    assert Loading(2).seconds(RATES) == 7.0


@given(end=st.floats(1e-4, 0.9), limit=st.integers(1, 2000))
def test_replies_are_shorter_than_their_limit_and_than_without_one(end: float, limit: int) -> None:
    assert 0.999 <= mean_length(end, limit) <= min(limit, 1 / end) * 1.001
    assert mean_length(end, limit) <= longest_reply(1000, end, limit) * 1.2


def test_the_mean_length_is_that_of_a_geometric_distribution() -> None:
    end, limit = 0.1, 4
    lengths = {1: 0.1, 2: 0.9 * 0.1, 3: 0.81 * 0.1, 4: 0.729}
    assert mean_length(end, limit) == pytest.approx(sum(length * share for length, share in lengths.items()))
    assert mean_length(0.0, limit) == 4


def test_a_generation_takes_one_pass_for_each_token_of_the_longest_reply_of_a_batch() -> None:
    work = Generating(256, 1000, 320)
    passes, written = longest_reply(256, 0.05, 320), 256 * mean_length(0.05, 320)
    assert work.seconds(RATES) == pytest.approx(passes * 0.01 + written * 0.0001 + 1000 * 0.0005)
    twice = Generating(512, 2000, 320)
    assert twice.seconds(RATES) == pytest.approx(2 * work.seconds(RATES))


def test_a_stage_is_the_sum_of_its_parts() -> None:
    workload = Workload([Replies(10, 100, 20)], scored_tokens=1000, seconds=1.0)
    one = Generating(10, 100, 20).seconds(RATES) + 0.5 + 1.0
    probes = StageWork("distill", "distilling", [Loading(), Measuring(workload, 3), Training(2, 100)])
    assert probes.seconds(RATES) == pytest.approx(5.0 + 3 * one + 2 * 0.2)
    assert probes.generates
    assert not StageWork("midtrain", "mid-training", [Training(2, 100)]).generates
