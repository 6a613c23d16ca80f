"""What a context gives a teacher, measured before anything is trained: without a lift there is nothing to distil.

The lift is the teacher's accuracy with its context minus that without, on the prompts with a check or a short answer.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

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
from recovery.errors import RecoverError
from recovery.states import Prompt

TWO_SIDED = 0.975  # of each bound: both together are an interval of 95 %


@dataclass(frozen=True)
class Lift:
    """The accuracies, and the interval of their difference. Stored with the run."""

    n: int
    bare: float
    in_context: float
    low: float
    high: float
    selected: bool = False  # the prompts were chosen by the same difference, so the lift is above that of others

    def __str__(self) -> str:
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
) -> dict[str, Any] | None:
    """Measure the lift, or read it from the cache; raise if the interval includes 0, unless a control is run.

    None where no prompt can be checked.
    `selected` says that the prompts were chosen as such that the teacher answers with their context alone."""
    distill = settings.distill
    checked = [prompt for prompt in prompts if prompt.context is not None and prompt.check is not None]
    if not checked:
        log.info("What the context gives the teacher is not measured: no prompt has checks or a short answer")
        return None
    chosen = Random(seed).sample(checked, min(distill.probe_items, len(checked)))
    template = chosen_recipe(distill).template

    def measure() -> dict[str, Any]:
        log.info(f"Measuring what the context gives the teacher, on {len(chosen)} prompts")
        student = load_frozen(teacher.path)
        tokenized = [prompt.tokenized(student.chat, template) for prompt in chosen]
        with open_engine(student, settings.engine) as engine:
            return asdict(_accuracy(Subject(engine, student.chat), chosen, tokenized, distill.max_new_tokens))

    rows = [[p.messages, p.tools, p.context, *map(p.row[1].get, CHECK_FIELDS)] for p in chosen]
    inputs = [project.weights_id(teacher), template, distill.max_new_tokens, seed, rows]
    measured = Lift(**project.cache.get_or_write("context-lift", inputs, measure))
    lift = replace(measured, selected=selected)
    log.info(f"  {str(lift)[0].upper()}{str(lift)[1:]}")
    is_control = distill.shuffle_contexts or not distill.require_lift
    if lift.low <= 0 and not is_control:
        raise RecoverError(
            f"The context is not shown to help the teacher: {lift}. Give other contexts or another teacher, or train "
            "all the same with --set distill.require_lift=false."
        )
    return asdict(lift)


def _accuracy(subject: Subject, prompts: Sequence[ChatPrompt], tokenized: Sequence[Prompt], limit: int) -> Lift:
    passed = []
    for sequences in ([p.tokens for p in tokenized], [p.teacher_prompt or p.tokens for p in tokenized]):
        pairs = zip(prompts, subject.complete(sequences, limit), strict=True)
        right = [bool(prompt.check and prompt.check(answer.text, answer.finished)) for prompt, answer in pairs]
        passed.append({str(number): is_right for number, is_right in enumerate(right)})
    test = paired_test(passed[0], passed[1], TWO_SIDED)
    bare, in_context = (sum(values.values()) / test.n for values in passed)
    return Lift(test.n, bare, in_context, test.low, test.high)
