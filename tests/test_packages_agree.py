"""Constants that two packages must share, though neither may import the other."""

import db.headlines
import evals.results
import pipelines.evaluation.tables


def test_the_record_and_the_evaluations_have_the_same_headlines() -> None:
    assert db.headlines.HEADLINES == evals.results.HEADLINES
    assert list(pipelines.evaluation.tables.SUITES) == list(evals.results.HEADLINES)
