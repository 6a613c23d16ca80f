"""What a study shows: the differences that its claims are about, of two arms on the items that both were asked, and the
verdicts. All of it comes from the entries of the arms."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evals.results import MEASURES, POOLED
from evals.stats.claims import Decision, Hypothesis, SeedDifferences, decide
from recovery.errors import RecoverError
from studies.declaration import OWN_CYCLE, Claim, Study
from studies.entries import Entry, passes

Arms = Mapping[str, Entry]  # of one seed


def results_of(study: Study, entries: Iterable[Entry]) -> dict[str, Any]:
    """The arms that are done, how many are planned, and once all are done the claims with their verdicts."""
    seeds: dict[int, dict[str, Entry]] = {seed: {} for seed in study.size.seeds}
    for entry in entries:
        seeds[entry["seed"]][entry["arm"]] = entry
    arms = [_without_items(one[arm]) for one in seeds.values() for arm in study.arms if arm in one]
    planned = len(seeds) * len(study.arms)
    claims = _decided(study, list(seeds.values())) if len(arms) == planned else []
    return {"arms": arms, "planned": planned, "claims": claims}


def hypothesis_of(claim: Claim, seeds: Sequence[Arms]) -> Hypothesis:
    """A claim with its differences on every seed."""
    if claim.metric not in MEASURES:
        means = tuple(_value(arms, claim.of, claim) - _value(arms, claim.against, claim) for arms in seeds)
        return Hypothesis(SeedDifferences(means, 0.0, len(means)), claim.direction, claim.margin)
    paired = [_paired(claim, arms) for arms in seeds]
    differences = SeedDifferences.of_items([_group(one, claim.items) for one in paired])
    if claim.minus_items:
        differences = differences.minus(SeedDifferences.of_items([_group(one, claim.minus_items) for one in paired]))
    return Hypothesis(differences, claim.direction, claim.margin)


def _decided(study: Study, seeds: Sequence[Arms]) -> list[dict[str, Any]]:
    claims = study.declared.claims
    hypotheses = [hypothesis_of(claim, seeds) for claim in claims]
    decisions = decide(hypotheses, study.declared.error)
    return [_claim(*one) for one in zip(claims, hypotheses, decisions, strict=True)]


def _claim(claim: Claim, hypothesis: Hypothesis, decision: Decision) -> dict[str, Any]:
    return {
        **claim.model_dump(exclude_none=True),
        "verdict": decision.verdict,
        "estimate": decision.estimate,
        "low": _finite(decision.low),
        "high": _finite(decision.high),
        "p_support": _finite(decision.p_support),
        "p_refute": _finite(decision.p_refute),
        "needed": decision.needed,
        "seeds": list(hypothesis.differences.means),
        "n": hypothesis.differences.items,
    }


def _value(arms: Arms, arm: str, claim: Claim) -> float:
    values = arms[arm]["values"]
    if claim.metric not in values:
        raise RecoverError(f"The arm {arm} has no {claim.metric}, which the claim {claim.text!r} is about.")
    return float(values[claim.metric])


def _paired(claim: Claim, arms: Arms) -> dict[str, float]:
    of, against = (_passes(role, claim, arms) for role in (claim.of, claim.against))
    return {key: of[key] - against[key] for key in of if key in against}


def _passes(role: str, claim: Claim, arms: Arms) -> dict[str, float]:
    """1 for each item that an arm passed, 0 for the others."""
    stages = [stage["outcomes"] for stage in arms[claim.of if role == OWN_CYCLE else role]["stages"]]
    tasks = stages[-1].get(claim.metric, {})
    if role == OWN_CYCLE:
        own = enumerate((stage.get("knowledge", {}) for stage in stages[:-1]), 1)
        tasks = {f"cycle:{number}": task for number, main in own for task in main.values()}
    is_keyed_by_task = role == OWN_CYCLE or claim.metric in POOLED
    return {
        f"{name}/{key}" if is_keyed_by_task else key: passed
        for name, task in tasks.items()
        for key, passed in passes(task).items()
    }


def _group(differences: Mapping[str, float], group: str) -> dict[str, float]:
    return {key: value for key, value in differences.items() if not group or key.startswith(f"{group}/")}


def _without_items(entry: Entry) -> Entry:
    stages = [{key: value for key, value in stage.items() if key != "outcomes"} for stage in entry["stages"]]
    return entry | {"stages": stages}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
