import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.settings.defaults import FEW_STEPS, MAX_STEP_TOKENS, midtraining_steps, scheduled, warn_of_few_steps
from pipelines.settings.schema import Midtrain, Mix


def steps_of(midtrain: Midtrain, tokens: int) -> int:
    return midtrain.steps(math.ceil(tokens / midtrain.window), midtrain.step_rows)


@given(st.integers(2_000, 10**9), st.sampled_from([128, 512, 2048]))
def test_every_corpus_gets_enough_steps_of_a_bounded_size(tokens: int, window: int) -> None:
    plan = scheduled(Midtrain(window=window), tokens)
    assert steps_of(plan, tokens) >= (FEW_STEPS if tokens >= 10 * window else 10)
    assert plan.step_rows * window <= MAX_STEP_TOKENS


@given(st.integers(1, 10**8), st.integers(1, 10**8))
def test_a_smaller_corpus_is_read_at_least_as_often(one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert scheduled(Midtrain(), small).epochs >= scheduled(Midtrain(), large).epochs


@pytest.mark.parametrize(("tokens", "epochs", "steps"), [(5_000, 15, 147), (50_000, 6, 146), (5_000_000, 3, 458)])
def test_the_plans_of_three_corpora(tokens: int, epochs: float, steps: int) -> None:
    plan = scheduled(Midtrain(), tokens)
    assert plan.epochs == pytest.approx(epochs, abs=0.2)
    assert steps_of(plan, tokens) == pytest.approx(steps, rel=0.06)


@given(st.integers(5_000, 1_000_000), st.sampled_from([0.1, 0.34, 0.5]))
def test_texts_of_the_mix_are_read_beside_the_documents_in_about_as_many_steps(tokens: int, texts: float) -> None:
    alone, mixed = (midtraining_steps(Midtrain(mix=Mix(texts=share)), tokens) for share in (0.0, texts))
    assert 0.7 <= mixed / alone <= 1.35


def test_settings_that_are_given_stay() -> None:
    plan = scheduled(Midtrain(epochs=2.5, rows=7), 1000)
    assert (plan.epochs, plan.rows) == (2.5, 7)


def test_a_plan_of_few_steps_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_few_steps(Midtrain(), FEW_STEPS)
    warn_of_few_steps(Midtrain(max_steps=5), 5)
    assert not caplog.records
    warn_of_few_steps(Midtrain(), 5)
    assert "Only 5 optimiser steps" in caplog.text
