"""`--teacher maths=REF,code=REF,*=REF`: a teacher for the prompts of each domain.

A prompt names its domain in its row (`"domain": "maths"`). Prompts of other domains, and without one, have the teacher
of `*`, by default the base.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self, get_args

from pipelines.synthetic.chat_prompts import ChatPrompt
from recovery.engines.servers import is_address
from recovery.errors import RecoverError
from recovery.states import Prompt

OTHERS = "*"
ROUTER = "router"
SelfTeacher = Literal["ema", "live"]  # values of `--teacher`: the student's average, or its weights as they are
SELF_TEACHERS: tuple[SelfTeacher, ...] = get_args(SelfTeacher)
NAMED_TEACHERS = (ROUTER, *SELF_TEACHERS)  # values of `--teacher` that are no references to a checkpoint


@dataclass(frozen=True)
class DomainTeachers:
    """References by domain, as they were given."""

    main: str
    by_domain: dict[str, str]

    @classmethod
    def parse(cls, value: str | None) -> Self | None:
        """None for a value that names a single teacher."""
        if value is None or "=" not in value or is_address(value) or Path(value).exists():
            return None
        teachers: dict[str, str] = {}
        for part in value.split(","):
            domain, _, reference = (text.strip() for text in part.partition("="))
            if not domain or not reference:
                raise RecoverError(f"The teacher {part.strip()!r} is not DOMAIN=REF. Write --teacher maths=REF,*=base.")
            if domain in teachers:
                raise RecoverError(f"The domain {domain} has two teachers. Name one.")
            if reference in NAMED_TEACHERS or is_address(reference):
                raise RecoverError(
                    f"The teacher {reference} cannot teach one domain alone. Name a checkpoint for {domain}."
                )
            teachers[domain] = reference
        main = teachers.pop(OTHERS, "base")
        if not teachers:
            raise RecoverError(f"The teacher {value} names no domain. Write --teacher {main}.")
        return cls(main, teachers)

    def check(self, prompts: Sequence[ChatPrompt]) -> None:
        """Raise if a teacher would have nothing to teach."""
        named = {domain_of(prompt) for prompt in prompts}
        if idle := [domain for domain in self.by_domain if domain not in named]:
            raise RecoverError(
                f'No prompt is of the domain {idle[0]}. Write "domain": "{idle[0]}" into its rows of --prompts, or '
                "leave its teacher out."
            )


def names_model(teacher: str) -> bool:
    """Whether a value of `--teacher` refers to one model, and does not say where or how the base teaches."""
    return teacher not in NAMED_TEACHERS and not is_address(teacher) and DomainTeachers.parse(teacher) is None


def domain_of(prompt: ChatPrompt) -> str | None:
    domain = prompt.row[1].get("domain")
    return domain if isinstance(domain, str) else None


def in_domains(prompts: Sequence[Prompt], given: Sequence[ChatPrompt], domains: Collection[str]) -> list[Prompt]:
    """The prompts with the domains of their rows, where these have a teacher of their own."""
    named = (domain_of(prompt) for prompt in given)
    return [
        replace(prompt, domain=domain) if domain in domains else prompt
        for prompt, domain in zip(prompts, named, strict=True)
    ]
