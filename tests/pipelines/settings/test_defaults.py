import math
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.request import Request
from pipelines.settings import defaults
from pipelines.settings.defaults import (
    FEW_STEPS,
    MAX_STEP_TOKENS,
    MEDIUM_MODEL_PARAMETERS,
    PACES,
    SMALL_MODEL_PARAMETERS,
    Pace,
    choose_engine,
    defaults_for,
    learns_from,
    midtraining_steps,
    scheduled,
    warn_of_few_steps,
)
from pipelines.settings.resolve import apply_overrides, change_recipe, differences, resolve_settings
from pipelines.settings.schema import Distill, Midtrain, Mix, split_rows
from pipelines.training.recipe_inputs import DISTILL_RECIPES, check_recipes
from recovery.errors import RecoverError
from recovery.recipes import RECIPES

SIZES = {"small": SMALL_MODEL_PARAMETERS, "medium": MEDIUM_MODEL_PARAMETERS, "large": MEDIUM_MODEL_PARAMETERS + 1}
PUBLISHED_ON_POLICY_RATES = (1e-6, 5e-5)  # with full weights


def pace(distill: Distill) -> Pace:
    return Pace(distill.learning_rate, distill.steps, distill.rows)


@pytest.mark.parametrize("recipe", DISTILL_RECIPES)
@pytest.mark.parametrize("size", SIZES)
def test_every_recipe_runs_by_default_at_every_size(recipe: str, size: str, tmp_path: Path) -> None:
    settings = resolve_settings(SIZES[size], tmp_path, Request("distill", recipe=recipe).setting_flags()).settings
    assert settings.distill.recipe == recipe
    assert settings.distill.dials == RECIPES[recipe].dials
    assert settings.distill.rows % RECIPES[recipe].group == 0
    assert round(RECIPES[recipe].on_policy_fraction * settings.distill.rows) % RECIPES[recipe].group == 0
    check_recipes(settings)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "other", "dials"),
    [
        ("gkd", "opd", ("on_policy_fraction=0.5", "beta=0.5")),
        ("offpolicy-kl", "gkd", ("on_policy_fraction=0", "beta=0")),
        ("teacher-reward", "grpo", ("teacher_weight=0.5",)),
        ("asft", "sft", ("anchor=0.1", "dft=true")),
    ],
)
def test_dials_alone_are_their_recipe(name: str, other: str, dials: tuple[str, ...], size: str, tmp_path: Path) -> None:
    by_name = resolve_settings(SIZES[size], tmp_path, {}, [f"distill.recipe={name}"])
    by_dials = resolve_settings(
        SIZES[size], tmp_path, {}, [f"distill.recipe={other}", *(f"distill.{dial}" for dial in dials)]
    )
    own = {"distill": {"recipe": name}}
    assert apply_overrides(by_dials.settings, own) == by_name.settings
    changed = [line.partition(" = ")[0] for line in differences(by_dials.settings, by_dials.default)]
    assert changed[: len(dials)] == [f"distill.{dial.partition('=')[0]}" for dial in dials]


def test_a_dial_has_its_default_where_another_gives_it_a_meaning(tmp_path: Path) -> None:
    blended = resolve_settings(SIZES["small"], tmp_path, {}, ["distill.teacher_weight=0.5", "distill.group=4"])
    assert blended.settings.distill.recipe == "opd"
    assert blended.settings.distill.dials == RECIPES["teacher-reward"].dials | {
        "group": 4, "on_policy_fraction": 1, "beta": 1, "clip": 0, "clip_mode": "zero"
    }  # fmt: skip
    assert pace(blended.settings.distill) == PACES["reward"]["small"]
    with pytest.raises(RecoverError, match=r"The recipe opd has no use for distill\.scale_rewards: it has no reward"):
        resolve_settings(SIZES["small"], tmp_path, {}, ["distill.scale_rewards=true"])


def test_a_recipe_on_rollouts_never_inherits_the_rate_of_ready_made_answers() -> None:
    low, high = PUBLISHED_ON_POLICY_RATES
    for recipe in DISTILL_RECIPES:
        rate = defaults_for(SIZES["medium"], recipe).distill.learning_rate
        assert (low <= rate <= high) == (learns_from(recipe) != "texts"), recipe


@pytest.mark.parametrize("source", ["flag", "file", "variable", "--set"])
def test_a_recipe_of_any_source_has_its_defaults(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if source == "file":
        (tmp_path / "recover.toml").write_text('[distill]\nrecipe = "opd"\n')
    if source == "variable":
        monkeypatch.setenv("RECOVER_DISTILL__RECIPE", "opd")
    flags = Request("distill", recipe="opd" if source == "flag" else None).setting_flags()
    assignments = ["distill.recipe=opd"] if source == "--set" else []
    settings, default, given = resolve_settings(SIZES["medium"], tmp_path, flags, assignments)
    assert pace(settings.distill) == PACES["teacher on rollouts"]["medium"] == pace(default.distill)
    assert differences(settings, default) == ["distill.recipe = opd (default offpolicy-kl)"]
    assert given == {"distill.recipe": "opd"}


def test_another_recipe_keeps_what_was_given() -> None:
    settings = defaults_for(SIZES["medium"])
    assert change_recipe(settings, "opd", SIZES["medium"]) == defaults_for(SIZES["medium"], "opd")
    assert pace(change_recipe(settings, "opd", SIZES["medium"], ["distill.rows", "midtrain.steps"]).distill) == Pace(
        2e-5, 80, 7
    )
    assert change_recipe(change_recipe(settings, "grpo", SIZES["medium"]), "offpolicy-kl", SIZES["medium"]) == settings


@pytest.mark.parametrize("former", DISTILL_RECIPES)
def test_another_recipe_has_dials_of_its_own(former: str) -> None:
    settings = defaults_for(SIZES["medium"], former)
    for name in DISTILL_RECIPES:
        assert change_recipe(settings, name, SIZES["medium"]).distill.dials == RECIPES[name].dials, name


SMALL, LARGE = SMALL_MODEL_PARAMETERS, SMALL_MODEL_PARAMETERS + 1


@pytest.fixture(params=[True, False])
def has_vllm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether vLLM looks installed."""
    spec = ModuleSpec("vllm", None) if request.param else None
    monkeypatch.setattr(defaults, "find_spec", lambda name: spec if name == "vllm" else None)
    defaults._automatic.cache_clear()
    yield request.param
    defaults._automatic.cache_clear()


def test_a_named_engine_and_a_small_model_need_no_message(has_vllm: bool, caplog: pytest.LogCaptureFixture) -> None:
    for parameters in (SMALL, LARGE):
        assert choose_engine("vllm", parameters) == "vllm"
        assert choose_engine("transformers", parameters) == "transformers"
    assert choose_engine("auto", SMALL) == "transformers"
    assert caplog.messages == []


def test_large_models_use_vllm_if_installed_and_say_so_once(has_vllm: bool, caplog: pytest.LogCaptureFixture) -> None:
    engine = "vllm" if has_vllm else "transformers"
    assert [choose_engine("auto", parameters) for parameters in (LARGE, 10 * LARGE, LARGE)] == [engine] * 3
    (message,) = caplog.messages
    assert message.startswith(
        "Engine: vLLM" if has_vllm else "Engine: transformers; vLLM generates text faster, but it is not"
    )


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


@pytest.mark.parametrize("size", ["medium", "large"])
@given(tokens=st.integers(1, 100_000))
def test_the_rows_of_a_later_cycle_have_one_of_every_part_of_the_mix(tokens: int, size: str) -> None:
    midtrain = scheduled(defaults_for(SIZES[size]).midtrain, tokens, has_earlier=True)
    mix = midtrain.mix
    assert all(split_rows(midtrain.step_rows, [share for share in (mix.earlier, mix.texts) if share]))


def test_settings_that_are_given_stay() -> None:
    plan = scheduled(Midtrain(epochs=2.5, rows=7), 1000)
    assert (plan.epochs, plan.rows) == (2.5, 7)


def test_a_plan_of_few_steps_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_few_steps(Midtrain(), FEW_STEPS)
    warn_of_few_steps(Midtrain(max_steps=5), 5)
    assert not caplog.records
    warn_of_few_steps(Midtrain(), 5)
    assert "Only 5 optimiser steps" in caplog.text
