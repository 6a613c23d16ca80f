"""How often the gate errs on simulated pairs of models, and how many prompts it takes.

    python -m benchmarks.sequential_verdicts [--pairs 2000] [--prompts 2000] [--block 200]
    python -m benchmarks.sequential_verdicts --losses 0.01,0.02,0.025 --differ 0.05

The gate looks after each block of prompts. The recovered model is as good as the clean one, worse by the gate's margin,
or worse by two margins, or by `--losses`. On a share of the prompts (`--differ`) one of them passes and the other fails
(where the loss is larger than this share, it is the loss).

`passed` and `failed` are the shares of pairs with this verdict; the rest is inconclusive. Beside them are those of one
look at all prompts. A model as good as the clean one should fail, and one that is worse by the margin or more should
pass, in at most one case in twenty.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.scripts import script_parser, table
from evals.stats.paired_comparison import p_at_most, wilson
from evals.stats.sequential import look_levels, look_sizes

SHARES_THAT_DIFFER = "0.02,0.05,0.1,0.25"
SURELY_OPEN = 1.5  # standard errors: no look has a bound closer than that

p_value = functools.cache(p_at_most)  # few tables occur, and most of them often


@dataclass(frozen=True)
class Design:
    total: int  # prompts that may be asked
    block: int  # prompts between two looks; 0: one look
    margin: float


@dataclass(frozen=True)
class ModelPair:
    """Two models, by the share of prompts on which one of them passes and the other fails."""

    differ: float
    loss: float

    def differences(self, prompts: int, rng: np.random.Generator) -> np.ndarray:
        """1 where only the recovered model passes, −1 where only the clean one does, else 0."""
        differ = max(self.differ, self.loss)
        kind = np.searchsorted([(differ + self.loss) / 2, differ], rng.random(prompts), side="right")
        return np.array([-1, 1, 0])[kind]


@dataclass(frozen=True)
class Simulation:
    """The shares of pairs that passed and failed, and the mean number of prompts asked."""

    pairs: int
    passed: float
    failed: float
    mean_items: float


def main(arguments: list[str] | None = None) -> dict[ModelPair, tuple[Simulation, Simulation]]:
    parser = script_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=2000, help="simulated pairs of models in each row")
    parser.add_argument("--prompts", type=int, default=2000, help="at most")
    parser.add_argument("--block", type=int, default=200, help="prompts between two looks")
    parser.add_argument("--margin", type=float, default=0.03)
    parser.add_argument("--differ", default=SHARES_THAT_DIFFER, metavar="SHARE,…", help="of all prompts")
    parser.add_argument("--losses", metavar="LOSS,…", help="default: none, the margin, and two margins")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    design = Design(args.prompts, args.block, args.margin)
    at_once = replace(design, block=0)
    results = {
        pair: (simulate(design, pair, args.pairs, args.seed), simulate(at_once, pair, args.pairs, args.seed))
        for pair in _pairs(
            _numbers(args.losses) if args.losses else [0, args.margin, 2 * args.margin], _numbers(args.differ)
        )
    }
    names = ("true loss", "prompts that differ", "passed", "failed", "prompts")
    rows = [
        (
            f"{pair.loss:.3g}" if args.losses else f"{pair.loss:.2f}",
            f"{pair.differ:.2f}",
            _with_interval(gate.passed, gate.pairs),
            _with_interval(gate.failed, gate.pairs),
            f"{gate.mean_items:,.0f}",
            f"{once.passed:.3f}",
            f"{once.failed:.3f}",
        )
        for pair, (gate, once) in results.items()
    ]
    table((*names, "one look: passed", "failed"), rows)
    clear = [gate.mean_items for pair, (gate, _) in results.items() if pair.loss != args.margin]
    mean = f"{np.mean(clear):,.0f} of {args.prompts:,} prompts"
    print(f"Asked on average, without the rows whose loss is the margin: {mean}")
    return results


def simulate(design: Design, pair: ModelPair, pairs: int, seed: int = 0) -> Simulation:
    """Ask simulated pairs of models until the verdict is clear."""
    rng = np.random.default_rng(seed)
    verdicts = [decide(design, pair.differences(design.total, rng)) for _ in range(pairs)]
    outcomes = [outcome for outcome, _ in verdicts]
    passed, failed = (outcomes.count(outcome) / pairs for outcome in ("passed", "failed"))
    return Simulation(pairs, passed, failed, float(np.mean([asked for _, asked in verdicts])))


def _pairs(losses: list[float], differ: list[float]) -> Iterator[ModelPair]:
    for loss in losses:
        yield from (ModelPair(share, loss) for share in dict.fromkeys(max(share, loss) for share in differ))


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def decide(design: Design, differences: np.ndarray) -> tuple[str, int]:
    """The outcome, and the number of prompts asked.

    By p-values, which decide as the bounds of `sequential_test` do and are much faster."""
    sizes = look_sizes(design.total, design.block)
    for n, level in zip(sizes, look_levels(tuple(sizes)), strict=True):
        if (outcome := _outcome(differences[:n], level, design.margin)) != "open":
            return outcome, n
    return "open", design.total


def _outcome(differences: np.ndarray, level: float, margin: float) -> str:
    n, distance = len(differences), differences.mean() + margin
    if abs(distance) < SURELY_OPEN * differences.std() / np.sqrt(n):
        return "open"
    lost, gained = int((differences < 0).sum()), int((differences > 0).sum())
    outcome, sides = ("passed", (lost, gained)) if distance > 0 else ("failed", (gained, lost))
    return outcome if p_value(n, *sides, -margin if outcome == "passed" else margin) < level else "open"


def _with_interval(share: float, pairs: int) -> str:
    low, high = wilson(share * pairs, pairs)
    return f"{share:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
