"""The differences that the claims of a study are about: of two arms, on the items that both were asked."""

from collections.abc import Mapping, Sequence
from typing import Any

from evals.results import MEASURES, POOLED, Result, main_result
from evals.stats.claims import Hypothesis, SeedDifferences
from pipelines.project.project import Project
from recovery.errors import RecoverError
from studies.declaration import OWN_CYCLE, Claim
from studies.seed_project import results_of

Entries = Mapping[str, Mapping[str, Any]]  # of one seed, by arm


def hypothesis_of(claim: Claim, seeds: Sequence[tuple[Mapping[str, Project], Entries]]) -> Hypothesis:
    """A claim with its differences on every seed; the projects are by their names in the entries."""
    if claim.metric not in MEASURES:
        means = tuple(_value(entries, claim.of, claim) - _value(entries, claim.against, claim) for _, entries in seeds)
        return Hypothesis(SeedDifferences(means, 0.0, len(means)), claim.direction, claim.margin)
    paired = [_paired(claim, projects, entries) for projects, entries in seeds]
    differences = SeedDifferences.of_items([_group(one, claim.items) for one in paired])
    if claim.minus_items:
        differences = differences.minus(SeedDifferences.of_items([_group(one, claim.minus_items) for one in paired]))
    return Hypothesis(differences, claim.direction, claim.margin)


def _value(entries: Entries, arm: str, claim: Claim) -> float:
    values = entries[arm]["values"]
    if claim.metric not in values:
        raise RecoverError(f"The arm {arm} has no {claim.metric}, which the claim {claim.text!r} is about.")
    return float(values[claim.metric])


def _paired(claim: Claim, projects: Mapping[str, Project], entries: Entries) -> dict[str, float]:
    of, against = (_passes(role, claim, projects, entries) for role in (claim.of, claim.against))
    return {key: of[key] - against[key] for key in of if key in against}


def _passes(role: str, claim: Claim, projects: Mapping[str, Project], entries: Entries) -> dict[str, float]:
    """1 for each item that an arm passed, 0 for the others."""
    entry = entries[claim.of if role == OWN_CYCLE else role]
    project = projects[entry["project"]]
    if role == OWN_CYCLE:
        own = [main_result(results_of(project, stage["checkpoint"]), "knowledge") for stage in entry["stages"][:-1]]
        return _keyed({f"cycle:{number}": result for number, result in enumerate(own, 1) if result})
    results = [result for result in results_of(project, entry["checkpoint"]) if result.suite == claim.metric]
    if claim.metric in POOLED:
        return _keyed({result.task: result for result in results if result.is_pass_rate})
    main = main_result(results, claim.metric)
    return _keyed({"": main} if main else {})


def _keyed(results: Mapping[str, Result]) -> dict[str, float]:
    return {
        f"{task}/{item.key}" if task else item.key: float(item.passed)
        for task, result in results.items()
        for item in result.items
    }


def _group(differences: Mapping[str, float], group: str) -> dict[str, float]:
    return {key: value for key, value in differences.items() if not group or key.startswith(f"{group}/")}
