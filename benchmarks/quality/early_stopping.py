"""What early stopping saves: one world, and a distillation with three times the usual number of steps.

    python -m benchmarks.quality.early_stopping [--world 501] [--budget 120] [--items 1000] [--size quick]

Probes use the items reserved for probing, the verdict the others. Prints each probe, the steps taken of the budget,
and the verdict; with `--whole`, also those of the same distillation without early stopping.
"""

import logging
import sys
import tempfile
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from benchmarks.quality.world_cycles import cycle_parser, run_cycle
from evals.results import main_result
from pipelines.log import log
from pipelines.outcome import Outcome


def main(arguments: list[str] | None = None) -> dict[str, Outcome]:
    parser = cycle_parser(__doc__, items=1000, size="quick")
    parser.add_argument("--world", type=int, default=501)
    parser.add_argument("--seed", type=int, default=51)
    parser.add_argument("--budget", type=int, default=120, help="steps (default 120, three times the usual)")
    parser.add_argument("--whole", action="store_true", help="also run without probes, to the end of the budget")
    args = parser.parse_args(arguments)
    disable_progress_bar()
    log.addHandler(_ProbeLines())
    log.setLevel(logging.INFO)
    settings, outcomes = args.assignments, dict[str, Outcome]()
    for name in ("probing", "whole") if args.whole else ("probing",):
        never = [f"distill.probe_every={args.budget}"] if name == "whole" else []  # the verdict's items stay the same
        args.assignments = [*settings, f"distill.steps={args.budget}", *never]
        with tempfile.TemporaryDirectory() as folder:
            outcomes[name] = run_cycle(args.world, args.seed, Path(folder), args)
        print(f"{name}: {describe(outcomes[name], args.budget)}", flush=True)
    return outcomes


def describe(outcome: Outcome, budget: int) -> str:
    steps, behaviour = outcome.distilled.steps, main_result(outcome.recovered, "behaviour")
    assert behaviour is not None
    saved = f"{steps} of {budget} steps ({1 - steps / budget:.0%} saved)"
    stopped = f", {outcome.distilled.stopped}" if outcome.distilled.stopped else ""
    verdict = f"{outcome.verdict.outcome}: {outcome.verdict.reason}"
    return f"{saved}{stopped}; behaviour {behaviour.headline.value:.3f}; {verdict}"


class _ProbeLines(logging.Handler):
    """Print the progress messages about probes."""

    def emit(self, record: logging.LogRecord) -> None:
        if "probe" in record.getMessage():
            print(record.getMessage().strip(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
