"""Which rate, steps and rows a distillation has by default, whatever names its recipe."""

from pathlib import Path

import pytest

from pipelines.request import Request
from pipelines.settings.defaults import (
    MEDIUM_MODEL_PARAMETERS,
    PACES,
    SMALL_MODEL_PARAMETERS,
    Pace,
    defaults_for,
    learns_from,
)
from pipelines.settings.resolve import apply_overrides, change_recipe, differences, resolve_settings
from pipelines.settings.schema import Distill
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
def test_a_recipe_by_its_dials_has_the_same_settings(
    name: str, other: str, dials: tuple[str, ...], size: str, tmp_path: Path
) -> None:
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
def test_every_source_that_names_a_recipe_brings_its_defaults(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
