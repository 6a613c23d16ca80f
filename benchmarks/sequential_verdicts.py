"""How often the gate errs on simulated pairs of models, and how many prompts and replies it takes.

    python -m benchmarks.sequential_verdicts [--pairs 2000] [--prompts 2000] [--block 200] [--samples 4]
    python -m benchmarks.sequential_verdicts --prompts 433 --stable 0,0.3,0.7
    python -m benchmarks.sequential_verdicts --losses 0.01,0.02,0.025 --differ 0.05

The gate looks after each block of prompts. Where all prompts do not decide, it looks again after each further reply to
every prompt. The recovered model is as good as the clean one, worse by the gate's margin, or worse by two margins, or
by `--losses`. On a share of the prompts (`--differ`) a reply of one passes and a reply of the other fails (where the
loss is larger than this share, it is the loss). On the share `--stable` of these they differ in every reply; on the
others each reply passes or fails by itself, so that further replies tell more.

`passed` and `failed` are the shares of pairs with this verdict; the rest is inconclusive. Beside them are those of one
look at one reply to every prompt. A model as good as the clean one should fail, and one that is worse by the margin or
more should pass, in at most one case in twenty.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.scripts import script_parser, table
from evals.stats.paired_comparison import p_at_most, weighted_counts, wilson
from evals.stats.sequential import greedy_alpha, look_levels, look_sizes, sample_levels

SHARES_THAT_DIFFER = "0.02,0.05,0.1,0.25"
SURELY_OPEN = 1.5  # standard errors: no look has a bound closer than that

p_value = functools.cache(p_at_most)  # without samples few tables occur, and most of them often


@dataclass(frozen=True)
class Design:
    total: int  # prompts that may be asked
    block: int  # prompts between two looks; 0: one look
    margin: float
    samples: int = 0  # further replies to each prompt, at most


@dataclass(frozen=True)
class ModelPair:
    """Two models, by the share of prompts on which a reply of one passes and a reply of the other fails."""

    differ: float
    loss: float
    stable: float = 0.0  # of `differ`, the share on which they differ in every reply

    def replies(self, prompts: int, count: int, rng: np.random.Generator) -> np.ndarray:
        """The differences (−1, 0 or 1) of `count` replies to each prompt: replies × prompts."""
        differ = max(self.differ, self.loss)
        whole = self.stable * differ
        lost_whole = min(self.loss, whole)
        unsure, shift = _unsure(differ - whole, self.loss - lost_whole)
        kinds = [(whole + lost_whole) / 2, (whole - lost_whole) / 2, unsure, 1 - whole - unsure]
        kind = np.searchsorted(np.cumsum(kinds)[:3], rng.random(prompts), side="right")
        before, after = (rng.random((count, prompts)) < 0.5 + sign * shift / 2 for sign in (1, -1))
        drawn = after.astype(np.int8) - before.astype(np.int8)
        return np.where(kind == 2, drawn, np.select([kind == 0, kind == 1], [-1, 1], 0))


@dataclass(frozen=True)
class Simulation:
    """The shares of pairs that passed and failed, and the mean number of prompts asked and of samples drawn."""

    pairs: int
    passed: float
    failed: float
    mean_items: float
    mean_samples: float


def main(arguments: list[str] | None = None) -> dict[ModelPair, tuple[Simulation, Simulation]]:
    parser = script_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=2000, help="simulated pairs of models in each row")
    parser.add_argument("--prompts", type=int, default=2000, help="at most")
    parser.add_argument("--block", type=int, default=200, help="prompts between two looks")
    parser.add_argument("--margin", type=float, default=0.03)
    parser.add_argument("--samples", type=int, default=4, help="further replies to each prompt, at most")
    parser.add_argument("--stable", default="0.3", metavar="SHARE,…", help="of the prompts that differ")
    parser.add_argument("--differ", default=SHARES_THAT_DIFFER, metavar="SHARE,…", help="of all prompts")
    parser.add_argument("--losses", metavar="LOSS,…", help="default: none, the margin, and two margins")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    design = Design(args.prompts, args.block, args.margin, args.samples)
    at_once = replace(design, block=0, samples=0)
    results = {
        pair: (simulate(design, pair, args.pairs, args.seed), simulate(at_once, pair, args.pairs, args.seed))
        for pair in _pairs(
            _numbers(args.losses) if args.losses else [0, args.margin, 2 * args.margin],
            _numbers(args.differ),
            _numbers(args.stable),
        )
    }
    names = ("true loss", "prompts that differ", "in every reply", "passed", "failed", "prompts", "samples")
    rows = [
        (
            f"{pair.loss:.3g}" if args.losses else f"{pair.loss:.2f}",
            f"{pair.differ:.2f}",
            f"{pair.stable:.1f}",
            _with_interval(gate.passed, gate.pairs),
            _with_interval(gate.failed, gate.pairs),
            f"{gate.mean_items:,.0f}",
            f"{gate.mean_samples:.1f}",
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
    verdicts = [_verdict(design, pair.replies(design.total, design.samples + 1, rng)) for _ in range(pairs)]
    outcomes = [outcome for outcome, _, _ in verdicts]
    passed, failed = (outcomes.count(outcome) / pairs for outcome in ("passed", "failed"))
    prompts, samples = (float(np.mean([verdict[i] for verdict in verdicts])) for i in (1, 2))
    return Simulation(pairs, passed, failed, prompts, samples)


def _pairs(losses: list[float], differ: list[float], stable: list[float]) -> Iterator[ModelPair]:
    for loss in losses:
        shares = dict.fromkeys(max(share, loss) for share in differ)
        yield from (ModelPair(shared, loss, share) for shared in shares for share in stable)


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _unsure(differ: float, loss: float) -> tuple[float, float]:
    """The share of prompts on which each reply passes or fails by itself, and by how much one model passes less often:
    the one with (1 + shift) / 2, the other with (1 − shift) / 2, so that (1 + shift²) / 2 of these replies differ."""
    if differ <= 0:
        return 0.0, 0.0
    share = differ + max(differ**2 - loss**2, 0.0) ** 0.5
    return share, loss / share


def _verdict(design: Design, replies: np.ndarray) -> tuple[str, int, int]:
    """The outcome, and the number of prompts asked and of samples drawn.

    By p-values, which decide as the bounds of `sequential_test` and `samples_test` do and are much faster."""
    sizes = look_sizes(design.total, design.block)
    for n, level in zip(sizes, look_levels(tuple(sizes), greedy_alpha(design.samples)), strict=True):
        if (outcome := _outcome(replies[0, :n], level, design.margin)) != "open":
            return outcome, n, 0
    for drawn, level in enumerate(sample_levels(design.samples) if design.samples else (), 1):
        if (outcome := _outcome(replies[: drawn + 1].mean(0), level, design.margin)) != "open":
            return outcome, design.total, drawn
    return "open", design.total, design.samples


def _outcome(differences: np.ndarray, level: float, margin: float) -> str:
    n, distance = len(differences), differences.mean() + margin
    if abs(distance) < SURELY_OPEN * differences.std() / np.sqrt(n):
        return "open"
    lost, gained = float(-differences.clip(max=0).sum()), float(differences.clip(min=0).sum())
    outcome, sides = ("passed", (lost, gained)) if distance > 0 else ("failed", (gained, lost))
    counts = weighted_counts(n, *sides, float((differences.astype(float) ** 2).sum()))
    return outcome if p_value(*counts, -margin if outcome == "passed" else margin) < level else "open"


def _with_interval(share: float, pairs: int) -> str:
    low, high = wilson(share * pairs, pairs)
    return f"{share:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
