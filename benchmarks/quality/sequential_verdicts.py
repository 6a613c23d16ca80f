"""How often the gate errs on simulated pairs of models, and how many prompts it asks, with looks after each block.

    python -m benchmarks.quality.sequential_verdicts [--pairs 2000] [--prompts 2000] [--block 200]

Each pair of models differs on a share of the prompts; the recovered model is as good as the clean one, worse by the
gate's margin, or worse by two margins (where this loss is larger than the share, they differ by the loss). `passed` and
`failed` are the shares of pairs with this verdict, beside the same for one look after all prompts; the rest is
inconclusive. A model as good as the clean one should fail, and one that is worse by the margin or more should pass, in
at most one case in twenty.
"""

import argparse
import functools
from dataclasses import dataclass

import numpy as np

from benchmarks.common import table
from evals.stats.paired_comparison import p_at_most, wilson
from evals.stats.sequential import look_levels, look_sizes

SHARES_THAT_DIFFER = (0.02, 0.05, 0.1, 0.25)
MARGINS_LOST = (0, 1, 2)

p_value = functools.cache(p_at_most)  # few tables occur, and most of them often


@dataclass(frozen=True)
class Design:
    total: int  # prompts that may be asked
    block: int  # prompts between two looks; 0: one look
    margin: float


@dataclass(frozen=True)
class Simulation:
    """The shares of pairs that passed and failed, and the mean number of prompts asked."""

    pairs: int
    passed: float
    failed: float
    mean_items: float


def main(arguments: list[str] | None = None) -> dict[tuple[float, int], tuple[Simulation, Simulation]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2000, help="simulated pairs of models in each row")
    parser.add_argument("--prompts", type=int, default=2000, help="at most")
    parser.add_argument("--block", type=int, default=200, help="prompts between two looks")
    parser.add_argument("--margin", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    design = Design(args.prompts, args.block, args.margin)
    at_once = Design(args.prompts, 0, args.margin)
    results = {
        (max(differ, lost * args.margin), lost): (
            simulate(design, differ, lost * args.margin, args.pairs, args.seed),
            simulate(at_once, differ, lost * args.margin, args.pairs, args.seed),
        )
        for lost in MARGINS_LOST
        for differ in SHARES_THAT_DIFFER
    }
    names = ("true loss", "prompts that differ", "passed", "failed", "prompts asked", "passed, all asked", "failed")
    rows = [
        (
            f"{lost * args.margin:.2f}",
            f"{differ:.2f}",
            _with_interval(blocks.passed, blocks.pairs),
            _with_interval(blocks.failed, blocks.pairs),
            f"{blocks.mean_items:,.0f}",
            _with_interval(whole.passed, whole.pairs),
            _with_interval(whole.failed, whole.pairs),
        )
        for (differ, lost), (blocks, whole) in results.items()
    ]
    table(names, rows)
    clear = [blocks.mean_items for (_, lost), (blocks, _) in results.items() if lost != 1]
    mean = f"{np.mean(clear):,.0f} of {args.prompts:,} prompts"
    print(f"Asked on average, without the rows whose loss is the margin: {mean}")
    return results


def simulate(design: Design, differ: float, loss: float, pairs: int, seed: int = 0) -> Simulation:
    """Ask simulated pairs of models, which differ on this share of the prompts, until the verdict is clear."""
    sizes = look_sizes(design.total, design.block)
    levels = look_levels(tuple(sizes))
    differ = max(differ, loss)
    shares = [(differ + loss) / 2, (differ - loss) / 2, 1 - differ]
    rng = np.random.default_rng(seed)
    blocks = np.stack([rng.multinomial(n, shares, size=pairs) for n in np.diff(sizes, prepend=0)], axis=1)
    verdicts = [_verdict(counts, sizes, levels, design.margin) for counts in blocks.cumsum(axis=1)[:, :, :2].tolist()]
    outcomes = [outcome for outcome, _ in verdicts]
    passed, failed = (outcomes.count(outcome) / pairs for outcome in ("passed", "failed"))
    return Simulation(pairs, passed, failed, float(np.mean([n for _, n in verdicts])))


def _verdict(counts: list[list[int]], sizes: list[int], levels: tuple[float, ...], margin: float) -> tuple[str, int]:
    """The outcome, and the number of prompts asked; `counts` has (lost, gained) at each look.

    By p-values, which decide as the bounds of `sequential_test` do and are much faster."""
    for (lost, gained), n, level in zip(counts, sizes, levels, strict=True):
        if p_value(n, lost, gained, -margin) < level:
            return "passed", n
        if p_value(n, gained, lost, margin) < level:
            return "failed", n
    return "open", sizes[-1]


def _with_interval(share: float, pairs: int) -> str:
    low, high = wilson(share * pairs, pairs)
    return f"{share:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
