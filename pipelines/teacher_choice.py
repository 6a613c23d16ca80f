"""Who teaches a distillation: what `--teacher` says, as a value. Only `parse_teacher` looks at the text.

A request names checkpoints by references, a job by their ids in the record."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from recovery.engines.servers import is_address
from recovery.errors import RecoverError

OTHERS = "*"

R = TypeVar("R")  # how a checkpoint is named


@dataclass(frozen=True)
class Base:
    kind: Literal["base"] = "base"


@dataclass(frozen=True)
class Model(Generic[R]):
    checkpoint: R
    kind: Literal["model"] = "model"


@dataclass(frozen=True)
class ByDomain(Generic[R]):
    main: R  # of prompts whose domain, if they name one, has no teacher of its own
    by_domain: dict[str, R]
    kind: Literal["by domain"] = "by domain"


@dataclass(frozen=True)
class Router:
    """The base teaches, and the last promoted checkpoint what earlier documents say."""

    kind: Literal["router"] = "router"


@dataclass(frozen=True)
class Served:
    """The base teaches, from vLLM servers."""

    addresses: str  # with a comma between them
    kind: Literal["served"] = "served"


@dataclass(frozen=True)
class Itself:
    """The student teaches: the average of its weights, or as it is."""

    weights: Literal["ema", "live"]
    kind: Literal["itself"] = "itself"


TeacherChoice = Base | Model[R] | ByDomain[R] | Router | Served | Itself

BASE = Base()
NAMED: dict[str, Router | Itself] = {"router": Router(), "ema": Itself("ema"), "live": Itself("live")}


def parse_teacher(text: str | None) -> TeacherChoice[str]:
    if text is None or text == "base":
        return BASE
    if text in NAMED:
        return NAMED[text]
    if is_address(text):
        return Served(text)
    return _parse_domains(text) if "=" in text and not Path(text).exists() else Model(text)


def _parse_domains(text: str) -> ByDomain[str]:
    teachers: dict[str, str] = {}
    for part in text.split(","):
        domain, _, reference = (side.strip() for side in part.partition("="))
        if not domain or not reference:
            raise RecoverError(f"The teacher {part.strip()!r} is not DOMAIN=REF. Write --teacher maths=REF,*=base.")
        if domain in teachers:
            raise RecoverError(f"The domain {domain} has two teachers. Name one.")
        if not isinstance(parse_teacher(reference), Base | Model):
            raise RecoverError(
                f"The teacher {reference} cannot teach one domain alone. Name a checkpoint for {domain}."
            )
        teachers[domain] = reference
    main = teachers.pop(OTHERS, "base")
    if not teachers:
        raise RecoverError(f"The teacher {text} names no domain. Write --teacher {main}.")
    return ByDomain(main, teachers)


def named_checkpoints(teacher: TeacherChoice[R]) -> list[R]:
    """The main teacher first; none where the base or the student teaches."""
    match teacher:
        case Model(checkpoint):
            return [checkpoint]
        case ByDomain(main, by_domain):
            return [main, *by_domain.values()]
        case _:
            return []


def with_ids(teacher: TeacherChoice[str], id_of: Callable[[str], int]) -> TeacherChoice[int]:
    match teacher:
        case Model(reference):
            return Model(id_of(reference))
        case ByDomain(main, by_domain):
            return ByDomain(id_of(main), {domain: id_of(reference) for domain, reference in by_domain.items()})
        case _:
            return teacher
