"""What a context gives a teacher, measured before anything is trained: without a lift there is nothing to distil.

Where prompts have a check or a short answer, the lift is the teacher's accuracy with its context minus that without.
Where they have none, nothing can be shown to be better; then the mean KL says how much the context changes at all.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

import torch

from db.tables import Checkpoint
from evals.stats.paired_comparison import paired_test
from evals.subject import Subject
from evals.suites.custom_checks import CHECK_FIELDS
from pipelines.log import log
from pipelines.model_loading import load_frozen, open_engine
from pipelines.project.project import Project
from pipelines.settings.schema import Settings
from pipelines.synthetic.prompts import ChatPrompt
from pipelines.training.recipe_inputs import chosen_recipe
from recovery.chunked_loss import CHUNK_ELEMENTS, chunks
from recovery.divergences import forward_kl
from recovery.engines import Engine, Sampling
from recovery.errors import RecoverError
from recovery.models.students import Student
from recovery.samples import Batch, Sample
from recovery.states import Prompt
from recovery.teachers import InContext, LiveTeacher

KL_PROMPTS = 64  # whose replies show how much the context changes
TWO_SIDED = 0.975  # of each bound: both together are an interval of 95 %


@dataclass(frozen=True)
class Lift:
    """The accuracies, and the interval of their difference; or the KL alone. Stored with the run."""

    n: int
    bare: float | None = None
    in_context: float | None = None
    low: float | None = None
    high: float | None = None
    kl: float | None = None  # nats a token, KL(with ‖ without) on replies written with the context
    selected: bool = False  # the prompts were chosen by the same difference, so the lift is above that of others

    def __str__(self) -> str:
        if self.bare is None or self.in_context is None:
            return f"the context changes the teacher by {self.kl:.3f} nats a token (mean KL over {self.n} replies)"
        note = "; the questions were chosen for it" if self.selected else ""
        return (
            f"right with the context {self.in_context:.3f}, without {self.bare:.3f}: "
            f"{self.in_context - self.bare:+.3f}, 95 % interval [{self.low:+.3f}, {self.high:+.3f}], n = {self.n}{note}"
        )


def check_lift(
    project: Project,
    teacher: Checkpoint,
    prompts: Sequence[ChatPrompt],
    settings: Settings,
    seed: int,
    *,
    selected: bool = False,
) -> dict[str, Any]:
    """Measure the lift, or read it from the cache; raise if the interval includes 0, unless a control is run.

    `selected` says that the prompts were chosen as such that the teacher answers with their context alone."""
    distill = settings.distill
    shown = [prompt for prompt in prompts if prompt.context is not None]
    checked = [prompt for prompt in shown if prompt.check is not None]
    usable, limit = checked or shown, distill.probe_items if checked else KL_PROMPTS
    chosen = Random(seed).sample(usable, min(limit, len(usable)))
    template = chosen_recipe(distill).template

    def measure() -> dict[str, Any]:
        log.info(f"Measuring what the context gives the teacher, on {len(chosen)} prompts")
        student = load_frozen(teacher.path)
        tokenized = [prompt.tokenized(student.chat, template) for prompt in chosen]
        with open_engine(student, settings.engine) as engine:
            if checked:
                return asdict(_accuracy(Subject(engine, student.chat), chosen, tokenized, distill.max_new_tokens))
            return asdict(_kl(student, engine, tokenized, distill.max_new_tokens, seed))

    rows = [[p.messages, p.tools, p.context, *map(p.row[1].get, CHECK_FIELDS)] for p in chosen]
    inputs = [project.weights_id(teacher), template, distill.max_new_tokens, seed, rows]
    measured = Lift(**project.cache.get_or_write("lift-of-turns", inputs, measure))
    lift = replace(measured, selected=selected)
    log.info(f"  {str(lift)[0].upper()}{str(lift)[1:]}")
    is_control = distill.shuffle_contexts or not distill.require_lift
    if lift.low is not None and lift.low <= 0 and not is_control:
        raise RecoverError(
            f"The context is not shown to help the teacher: {lift}. Give other contexts or another teacher, or train "
            "all the same with --set distill.require_lift=false."
        )
    return asdict(lift)


def _accuracy(subject: Subject, prompts: Sequence[ChatPrompt], tokenized: Sequence[Prompt], limit: int) -> Lift:
    passed = []
    for sequences in ([p.tokens for p in tokenized], [p.teacher_prompt or p.tokens for p in tokenized]):
        pairs = zip(prompts, subject.complete(sequences, limit, of_turns=True), strict=True)
        right = [bool(prompt.check and prompt.check(answer.text, answer.finished)) for prompt, answer in pairs]
        passed.append({str(number): is_right for number, is_right in enumerate(right)})
    test = paired_test(passed[0], passed[1], TWO_SIDED)
    bare, in_context = (sum(values.values()) / test.n for values in passed)
    return Lift(test.n, bare, in_context, test.low, test.high)


@torch.no_grad()
def _kl(student: Student, engine: Engine, prompts: Sequence[Prompt], limit: int, seed: int) -> Lift:
    replies = engine.generate([p.teacher_prompt or p.tokens for p in prompts], Sampling(limit, seed=seed))
    rows = [prompt.with_reply(reply.tokens) for prompt, reply in zip(prompts, replies, strict=True)]
    values = torch.cat([_kl_of_row(student, row) for row in rows])
    return Lift(len(rows), kl=float(values.mean()))


def _kl_of_row(student: Student, row: Sample) -> torch.Tensor:
    batch, teacher = Batch.collate([row], student.chat.pad_id, student.device), LiveTeacher(student)
    bare, shown = teacher.distribution(batch), InContext(teacher).distribution(batch)
    parts = chunks(row.target_count, len(student.head.weight), CHUNK_ELEMENTS)
    return torch.cat([forward_kl(bare.logprobs(part), shown.logprobs(part)).cpu() for part in parts])
