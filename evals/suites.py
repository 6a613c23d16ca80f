"""The suites by name: what `recover eval` and the cycle measure a checkpoint by."""

from collections.abc import Mapping
from pathlib import Path

from evals.results import Result
from evals.subject import Subject

SUITES = ("behaviour", "knowledge", "retention")


def measure(
    subject: Subject,
    suite: str = "all",
    *,
    limit: int | None = None,
    ifeval_data: str | Path | None = None,
    questions: str | Path | None = None,
    suites: Mapping[str, str] | None = None,
) -> list[Result]:
    """Measure one suite, or all that there is data for.

    `suites` is what the base's `recover.json` says it is to be measured by: per suite `lab`, or the names of lm-eval
    tasks with commas between them. Unnamed, behaviour is the public IFEval and retention is nothing."""
    raise NotImplementedError
