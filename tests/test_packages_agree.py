"""Constants that two packages must share, though neither may import the other."""

import db.headline_scores
import db.next_attempt
import evals.results
from pipelines.training.recipe_inputs import DISTILL_RECIPES
from recovery.recipes import RECIPES


def test_the_record_and_the_evaluations_have_the_same_headlines() -> None:
    assert db.headline_scores.HEADLINES == evals.results.HEADLINES
    assert db.headline_scores.POOLED == evals.results.POOLED
    assert tuple(db.headline_scores.MEASURES) == evals.results.MEASURES


def test_advice_is_given_on_the_recipes_that_restore() -> None:
    assert set(db.next_attempt.RESTORING) == {name for name in DISTILL_RECIPES if RECIPES[name].restores}
