"""Entries of a study whose arms pass planted shares of the items; no model is used."""

from collections.abc import Mapping

import numpy as np

from evals.results import MEASURES, Item, Metric, Result, item_key
from studies.declaration import Study
from studies.entries import Entry, new_entry, outcomes

ITEMS = 500
Outcome = Mapping[str, float]  # how many items each arm passes, as a share


def planted_entries(study: Study, planted: Outcome) -> list[Entry]:
    return [planted_entry(study, seed, arm, planted[arm]) for seed in study.size.seeds for arm in study.arms]


def planted_entry(study: Study, seed: int, arm: str, share: float) -> Entry:
    rng = np.random.default_rng([seed, list(study.arms).index(arm)])
    passed = np.random.default_rng(0).random(ITEMS) < np.clip(share + rng.normal(0, 0.01), 0, 1)
    scores = {"behaviour": 0.5, "knowledge": 0.9, "earlier": None, "retention": 0.8}
    measured = {
        **{"steps": 8, "pflops": 0.1, "seconds": 3.0, "scores": scores, "n": dict.fromkeys(scores, ITEMS)},
        "values": {"pflops": 0.1 * seed, "slope": 0.0, "token_entropy": 0.0},
        "stages": [{"scores": scores, "outcomes": outcomes([result(suite, passed) for suite in MEASURES])}],
    }
    return new_entry(study, seed, arm, study.settings_of(study.arms[arm]), measured)


def result(suite: str, passed: np.ndarray) -> Result:
    task = {"behaviour": "ifeval", "knowledge": "closed_book"}.get(suite, "general")
    items = [Item(item_key(str(number)), "", "", bool(value)) for number, value in enumerate(passed)]
    return Result(task, suite, "lab", {"accuracy": Metric.from_passes([i.passed for i in items])}, items, {}, 1.0)
