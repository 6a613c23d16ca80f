"""The shipped base follows instructions well enough to measure cycles by, and gives the same results every time."""

import pytest

from evals.results import Result, headlines
from evals.subject import Subject
from evals.suites.suite_measurement import measure
from recovery import lab
from recovery.engines.transformers import TransformersEngine
from recovery.models.students import checkpoint_metadata, load_student

BASE = str(lab.BASE)


@pytest.fixture(scope="module")
def results() -> list[Result]:
    base = load_student(BASE, frozen=True)
    return measure(Subject(TransformersEngine(base), base.chat), limit=16, suites=checkpoint_metadata(BASE)["suites"])


def test_the_base_is_measured_by_its_own_suites(results: list[Result]) -> None:
    tasks = [(result.suite, result.task) for result in results]
    assert ("behaviour", "ifeval") in tasks
    assert ("retention", "arithmetic") in tasks
    assert {result.data for result in results} == {"lab"}
    assert (headlines(results)["behaviour"] or 0) > 0.15


def test_it_finishes_its_replies_and_refuses(results: list[Result]) -> None:
    ifeval, refusals = (result for result in results if result.suite == "behaviour")
    assert ifeval.metrics["finished"].value > 0.7
    assert refusals.metrics["match"].value > 0.7
