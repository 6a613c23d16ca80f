"""What looking on the way saves: one world, a distillation that may take three times as long as it should.

    python -m benchmarks.quality.early_stopping [--world 501] [--budget 120] [--items 1000] [--size quick]

A look asks the items that are kept for looking; the verdict, the other ones. Printed: each look, the steps that were
taken of the budget, and the verdict beside that of the same distillation left to spend all of it (`--whole`).
"""

import sys
import tempfile
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from benchmarks.quality.world_cycles import cycle_on, options
from evals.results import main_result
from pipelines.cycle import Outcome


def main(arguments: list[str] | None = None) -> dict[str, Outcome]:
    wanted = options(__doc__, items=1000, size="quick")
    wanted.add_argument("--world", type=int, default=501)
    wanted.add_argument("--seed", type=int, default=51)
    wanted.add_argument("--budget", type=int, default=120, help="steps (default 120, three times the usual)")
    wanted.add_argument("--whole", action="store_true", help="also without looks, to the end of the budget")
    asked = wanted.parse_args(arguments)
    disable_progress_bar()
    given, found = asked.dotted, dict[str, Outcome]()
    for way in ("looking", "whole") if asked.whole else ("looking",):
        never = [f"distill.probe_every={asked.budget}"] if way == "whole" else []  # the verdict's items stay the same
        asked.dotted = [*given, f"distill.steps={asked.budget}", *never]
        with tempfile.TemporaryDirectory() as folder:
            found[way] = cycle_on(asked.world, asked.seed, Path(folder), asked, _looks)
        print(f"{way}: {in_words(found[way], asked.budget)}", flush=True)
    return found


def in_words(done: Outcome, budget: int) -> str:
    steps, behaviour = done.distilled.steps, main_result(done.recovered, "behaviour")
    assert behaviour is not None
    saved = f"{steps} of {budget} steps ({1 - steps / budget:.0%} saved)"
    why = f", {done.distilled.stopped}" if done.distilled.stopped else ""
    return f"{saved}{why}; behaviour {behaviour.headline.value:.3f}; {done.verdict.outcome}: {done.verdict.reason}"


def _looks(words: str) -> None:
    if "probe" in words:
        print(words.strip(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
