"""Constants that two packages must share, though neither may import the other."""

import db.headline_scores
import evals.results


def test_the_record_and_the_evaluations_have_the_same_headlines() -> None:
    assert db.headline_scores.HEADLINES == evals.results.HEADLINES
    assert db.headline_scores.POOLED == evals.results.POOLED
    assert tuple(db.headline_scores.MEASURES) == evals.results.MEASURES
