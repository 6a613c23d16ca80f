"""What a training command was given on its command line, before anything of it is checked."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evals.suites.lab import RETENTION_ITEMS
from pipelines.jobs.job import Command
from pipelines.settings.schema import Settings
from pipelines.settings.sources import EngineName
from pipelines.training.domain_teachers import DomainTeachers
from pipelines.training.recipe_inputs import SELF_TEACHERS
from pipelines.training.stage_teachers import ROUTER
from recovery.engines.servers import is_address
from recovery.recipes import recipe

NAMED_TEACHERS = (ROUTER, *SELF_TEACHERS)  # values of `--teacher` that are no references to a checkpoint
SECONDARY_LIMIT = RETENTION_ITEMS  # or half of --limit: retention and refusals need fewer items


@dataclass(frozen=True)
class Request:
    """What a training command was given; options that it does not have stay None."""

    command: Command
    base: str | None = None
    docs: Path | None = None
    teacher: str | None = None
    student: str | None = None
    prompts: Path | None = None
    teacher_context: Path | None = None
    questions: Path | None = None
    ifeval_data: Path | None = None
    limit: int | None = None
    secondary_limit: int = SECONDARY_LIMIT
    seed: int = 0
    ask: bool = False
    recipe: str | None = None
    mix: str | None = None
    warm_start: str | None = None
    engine: EngineName | None = None
    processes: int = 1  # that train together
    max_steps: int | None = None
    max_minutes: float | None = None
    max_flops: float | None = None
    assignments: tuple[str, ...] = ()  # of `--set`

    def setting_flags(self) -> dict[str, Any]:
        """The options that are settings, nested as in recover.toml."""
        stage = "midtrain" if self.command == "midtrain" else "distill"
        flags: dict[str, dict[str, Any]] = {
            "midtrain": {"mix": self.mix},
            "distill": {
                "warm_start": self.warm_start,
                "max_minutes": self.max_minutes,
                "max_flops": self.max_flops,
            },
        }
        flags[stage] |= {"recipe": self.recipe, "max_steps": self.max_steps}
        set_flags: dict[str, Any] = {
            group: {name: value for name, value in values.items() if value is not None}
            for group, values in flags.items()
        }
        set_flags = {group: values for group, values in set_flags.items() if values}
        return set_flags | ({"engine": self.engine} if self.engine is not None else {})


def names_model(teacher: str) -> bool:
    """Whether a value of `--teacher` refers to one model, and does not say where or how the base teaches."""
    return teacher not in NAMED_TEACHERS and not is_address(teacher) and domain_teachers(teacher) is None


def domain_teachers(teacher: str | None) -> DomainTeachers | None:
    """What `--teacher DOMAIN=REF,…` names; None where it names a single teacher."""
    return DomainTeachers.parse(teacher or "", NAMED_TEACHERS)


def with_teacher(request: Request, settings: Settings) -> Request:
    """The request with the recipe's own teacher, where it names none."""
    if request.teacher is not None or request.command == "midtrain":
        return request
    return replace(request, teacher=recipe(settings.distill.recipe).teacher)
