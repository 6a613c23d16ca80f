"""A teacher that sends some tokens and a bucket for the rest, against one with the whole distribution.

    python -m benchmarks.quality.listed_tokens [--steps 20] [--rows 32] [--items 300] [--seed 1] [--set NAME=VALUE]

First the divergence: mean reverse KL of a mid-trained model's rollouts to the clean model, exact and over k tokens and
a bucket: those that a server lists (the sampled one and the teacher's likeliest), and the student's likeliest. Then
what on-policy distillation brings back with either teacher, in the same number of steps. No server is needed: the list
is cut from the whole distribution, and the tests show that a server sends the same.
"""

import argparse
import tempfile
from pathlib import Path

import torch

from benchmarks.quality.recipes import DEVICE, Bench
from evals.results import Metric
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE
from recovery.losses.divergences import reverse_kl, with_tail
from recovery.models.students import Student, load_student
from recovery.samples import Batch, Sample
from recovery.server_teacher import LISTED, ListedLogprobs
from recovery.states import Rollouts
from recovery.teachers import FrozenTeacher

COUNTS = (5, 20, 64)
ROLLOUTS = 64


class ListingTeacher(FrozenTeacher):
    """A model on this machine that says no more than a server would."""

    def distribution(self, batch: Batch) -> ListedLogprobs:  # type: ignore[override]
        return listing(super().distribution(batch).logprobs(slice(None)), batch.target_tokens, LISTED)


def listing(logprobs: torch.Tensor, sampled: torch.Tensor, count: int) -> ListedLogprobs:
    others = logprobs.scatter(-1, sampled[:, None], -torch.inf).topk(count - 1).indices
    tokens = torch.cat([sampled[:, None], others], dim=-1)
    return ListedLogprobs(tokens, logprobs.gather(-1, tokens))


@torch.no_grad()
def print_divergences(student: Student, teacher: FrozenTeacher, samples: list[Sample]) -> dict[str, float]:
    """Print them; returns the share of the exact one that each has."""
    rows: dict[str, list[float]] = {}
    for sample in samples:
        batch = Batch.collate([sample], 0, student.device)
        ours = torch.log_softmax(student.head.logits(student.hidden(batch)), -1)
        theirs = teacher.distribution(batch).logprobs(slice(None))
        cases = {"exact": (ours, theirs)}
        for count in COUNTS:
            top = ours.topk(count).indices
            cases[f"{count} listed"] = listing(theirs, batch.target_tokens, count).compare(ours, slice(None))
            cases[f"{count} of the student's"] = with_tail(ours.gather(-1, top)), with_tail(theirs.gather(-1, top))
        for name, pair in cases.items():
            rows.setdefault(name, []).append(float(reverse_kl(*pair).mean()))
    print(f"{'reverse KL, nats a token':34} mean over {len(samples)} rollouts, of the exact one")
    shares = {name: sum(values) / sum(rows["exact"]) for name, values in rows.items()}
    for name, values in rows.items():
        metric = Metric.from_values(values)
        low, high = metric.ci95
        print(f"{name:34} {metric.value:.4f} [{low:.4f}, {high:.4f}]  {shares[name]:.3f}", flush=True)
    return shares


def main(argv: list[str] | None = None) -> tuple[dict[str, float], dict[str, Metric]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=str(BASE))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--items", type=int, default=300, help="held-out instruction prompts per measurement")
    parser.add_argument("--seed", type=int, default=1, help="of the world and of all sampling")
    parser.add_argument("--rows", type=int, default=32, help="rollouts of a step")
    parser.add_argument("--set", dest="assignments", action="append", default=[], metavar="NAME=VALUE")
    args = parser.parse_args(argv)
    args.world, args.longer_than = "quick", 0
    sizes = [f"distill.prompts={args.rows * args.steps}", f"distill.rows={args.rows}", "distill.max_new_tokens=128"]
    args.assignments = [*sizes, "midtrain.soft_labels=false", *args.assignments]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        student = load_student(str(bench.damaged), device=DEVICE)
        rollouts = Rollouts(bench.prompts, TransformersEngine(student), rows=ROLLOUTS, max_new_tokens=128)
        shares = print_divergences(student, bench.teacher, [s for s in rollouts.draw(student, 0) if s.target_count])
        bench.row("mid-trained", student, bench.seconds, bench.flops)
        bench.run("opd", label="opd, exact")
        bench.teacher = ListingTeacher(args.base, device=DEVICE)
        bench.run("opd", label=f"opd, {LISTED} listed")
        return shares, bench.instructions


if __name__ == "__main__":
    main()
