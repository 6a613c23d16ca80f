"""How much of the divergence from a teacher is seen by one that lists some tokens, with a bucket for the rest?

    python -m benchmarks.listed_tokens --student MODEL [--teacher MODEL] [--prompts 64] [--seed 0]

Mean reverse KL of the student's rollouts to the teacher, exact and over k tokens and a bucket: those that a server
lists (the sampled one and the teacher's likeliest), and the student's likeliest. The teacher writes the prompts. No
server is needed: the list is cut from the whole distribution, and the tests show that a server sends the same.
"""

import torch

from benchmarks.scripts import script_parser, table
from evals.results import Metric
from pipelines.model_loading import device
from pipelines.synthetic.prompts import as_prompts, write_prompts
from recovery.divergences import reverse_kl, with_tail
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE
from recovery.models.students import Student, load_student
from recovery.samples import Batch, Sample
from recovery.server_teacher import ListedLogprobs
from recovery.states import Rollouts
from recovery.teachers import FrozenTeacher

COUNTS = (5, 20, 64)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Print the divergences; returns the share of the exact one that each has."""
    parser = script_parser(__doc__)
    parser.add_argument("--student", required=True, help="a model folder or a hub id")
    parser.add_argument("--teacher", default=str(BASE), help="the same (default: the built-in model)")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    writer = load_student(args.teacher, frozen=True, device=device())
    texts = write_prompts(TransformersEngine(writer), writer.chat, args.prompts, args.seed)
    student, teacher = load_student(args.student, device=device()), FrozenTeacher(args.teacher, device=device())
    prompts, engine = as_prompts(texts, student.chat), TransformersEngine(student)
    drawn = Rollouts(prompts, engine, rows=args.prompts, max_new_tokens=args.max_new_tokens, seed=args.seed)
    rollouts = [_divergences(student, teacher, one) for one in drawn.draw(student, 0) if one.target_count]
    metrics = {name: Metric.from_values([one[name] for one in rollouts]) for name in rollouts[0]}
    shares = {name: metric.value / metrics["exact"].value for name, metric in metrics.items()}
    intervals = {name: "[{:.4f}, {:.4f}]".format(*metric.ci95) for name, metric in metrics.items()}
    rows = [[name, f"{one.value:.4f} {intervals[name]}", f"{shares[name]:.3f}"] for name, one in metrics.items()]
    table(["events", f"reverse KL, nats a token, {len(rollouts)} rollouts", "share"], rows)
    return shares


@torch.no_grad()
def _divergences(student: Student, teacher: FrozenTeacher, sample: Sample) -> dict[str, float]:
    batch = Batch.collate([sample], 0, student.device)
    ours = torch.log_softmax(student.head.logits(student.hidden(batch)), -1)
    theirs = teacher.distribution(batch).logprobs(slice(None))
    cases = {"exact": (ours, theirs)}
    for count in COUNTS:
        top = ours.topk(count).indices
        cases[f"{count} listed"] = _listing(theirs, batch.target_tokens, count).compare(ours, slice(None))
        cases[f"{count} of the student's"] = with_tail(ours.gather(-1, top)), with_tail(theirs.gather(-1, top))
    return {name: float(reverse_kl(*pair).mean()) for name, pair in cases.items()}


def _listing(logprobs: torch.Tensor, sampled: torch.Tensor, count: int) -> ListedLogprobs:
    others = logprobs.scatter(-1, sampled[:, None], -torch.inf).topk(count - 1).indices
    tokens = torch.cat([sampled[:, None], others], dim=-1)
    return ListedLogprobs(tokens, logprobs.gather(-1, tokens))


if __name__ == "__main__":
    main()
