"""Simulated outcomes of two arms on several seeds. As a program: how often three intervals support a false claim.

python -m tests.evals.stats.simulated_arms
"""

import numpy as np

from evals.stats.claims import SeedDifferences

STUDIES, BOOTSTRAPS, LEVEL = 800, 300, 0.05


def simulated(
    rng: np.random.Generator, difference: float, *, seeds: int = 3, items: int = 200, between: float = 0.02,
    item_spread: float = 0.2, shared: bool = True,
) -> SeedDifferences:  # fmt: skip
    """Outcomes of two arms. Each seed moves the true difference, and each item has one of its own."""
    of_item = rng.normal(0, item_spread, items)
    rows = []
    for seed in range(seeds):
        if not shared:
            of_item = rng.normal(0, item_spread, items)
        shift = np.clip(difference + rng.normal(0, between) + of_item, -1, 1)
        won = rng.random(items) < 0.08 + np.abs(shift)
        signs = np.where(rng.random(items) < 0.5 + 0.5 * shift / (0.08 + np.abs(shift)), 1.0, -1.0)
        rows.append({(f"{i}" if shared else f"{seed}/{i}"): float(v) for i, v in enumerate(won * signs)})
    return SeedDifferences.of_items(rows)


def false_support(seeds: int, shared: bool) -> tuple[float, float, float]:
    """The share of null studies whose lower bound is above 0: our bound, a t interval alone, a bootstrap over seeds."""
    rng = np.random.default_rng(7)
    runs = [simulated(rng, 0.0, seeds=seeds, shared=shared) for _ in range(STUDIES)]
    wrong = [[run.estimate > run.half_width(LEVEL), _t_alone(run)] for run in runs]
    drawn = (np.array(run.means)[rng.integers(0, seeds, (300, seeds))].mean(1) for run in runs[:BOOTSTRAPS])
    ours, t_alone = np.mean(wrong, axis=0)
    return float(ours), float(t_alone), float(np.mean([np.quantile(means, LEVEL) > 0 for means in drawn]))


def _t_alone(run: SeedDifferences) -> bool:
    return run.estimate > SeedDifferences(run.means).half_width(LEVEL)


if __name__ == "__main__":
    for seeds, shared in ((3, True), (3, False), (5, True), (8, True)):
        items = "the same on all seeds" if shared else "others on each seed"
        print(
            f"| {seeds} | {items} | {' | '.join(f'{rate:.3f}' for rate in false_support(seeds, shared))} |", flush=True
        )
