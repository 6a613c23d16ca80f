"""The declaration of a study: a TOML file with its claims, arms and sizes, checked and hashed before anything runs."""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from evals.measurement_keys import data_hash
from evals.results import MEASURES
from evals.stats.claims import Direction
from pipelines.project.project import weights_id
from pipelines.settings.mix import parse_mix
from pipelines.settings.resolve import apply_overrides, as_text, flatten
from pipelines.settings.schema import Settings
from pipelines.settings.sources import PROJECT_SETTINGS
from pipelines.teacher_choice import NAMED
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.lab.worlds import WorldSize

CLEAN, START = "clean", "damaged"  # arms that every study has: the clean model, and the start that the others share
DRIFT_METRICS = ("pass@8", "distinct", "answer_entropy", "token_entropy", "kl_to_clean")  # of `compare --drift`
WITHOUT_ITEMS = ("slope", *DRIFT_METRICS)  # measured on prompts that entries have no values of
METRICS = (*MEASURES, "pflops", *WITHOUT_ITEMS)
INSTRUCTIONS = "instructions"  # the lab's prompts with checks and right answers, as a file of an arm
QUESTIONS = "questions"  # the same facts as those asked, in other words and without answers, as a file of an arm
OWN_CYCLE = "own-cycle"  # of an arm with several cycles: what each cycle reached on its own documents
# All prompts are asked, and no probe ends a training; a collapse does.
EVERY_ARM = {"gate": {"block": 0}, "distill": {"probe_every": 0, "if_needed": False}}
SHIPPED = resources.files("studies") / "declarations"

Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class WithSettings(Part):
    """A table with the flags and settings of the training commands among its keys."""

    recipe: str | None = None
    mix: str | None = None
    warm_start: str | float | None = None
    settings: dict[str, Any] = {}  # nested as in recover.toml

    @model_validator(mode="before")
    @classmethod
    def _settings_apart(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        names = Settings.model_fields.keys() - cls.model_fields.keys() - PROJECT_SETTINGS.keys()
        settings = {name: value for name, value in values.items() if name in names}
        others = {name: value for name, value in values.items() if name not in names}
        return {**others, **({"settings": settings} if settings else {})}


class Arm(WithSettings):
    about: str = ""
    command: Literal["distill", "midtrain", "cycle"] = "distill"  # the last two begin with the clean model
    student: str = START  # of `distill`: an earlier arm
    teacher: str = CLEAN
    steps_times: Annotated[float, Field(gt=0)] | None = None  # of the study's `distill.steps`: equal FLOPs
    rate_times: Annotated[float, Field(ge=0)] | None = None  # of the learning rate that is the default for the base
    prompts: str | None = None  # `instructions`, `questions`, or a JSONL file as `--prompts` takes it
    teacher_context: str | None = None  # `instructions`, or a JSONL file as `--teacher-context` takes it
    cycles: Count = 1  # of `cycle`: each on another world, from the model before it


class Claim(Part):
    text: Text
    metric: str
    of: str
    against: str
    direction: Direction = "above"
    margin: Annotated[float, Field(gt=0)]
    source: float | None = None  # the difference that the source reports, in the metric's units
    control: str = ""  # where the claim is that a simpler explanation fails: which one
    items: str = ""  # only those of this group
    minus_items: str = ""  # less the same difference on those of this group


class Size(WithSettings):
    seeds: Annotated[list[int], Field(min_length=1)]
    items: Count
    world: WorldSize = "quick"
    base: str | None = None
    arms: Annotated[list[str], Field(min_length=1)] | None = None  # these alone, and the claims about them


class Data(Part):
    """A user's own documents, in place of the lab's worlds; paths are relative to the declaration."""

    docs: str
    questions: str | None = None


class Tune(Part):
    """The learning rate is chosen for each arm, on a seed that no verdict uses."""

    arms: Annotated[list[str], Field(min_length=1)]
    rate_times: Annotated[list[float], Field(min_length=2)]  # of the arm's own default
    seed: int


class Declaration(Part):
    title: Text  # the claim in words
    source: Text
    figure: Text  # what the source reports
    about: str = ""
    error: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    start: WithSettings | None = None  # how the damaged start reads the documents
    common: WithSettings = WithSettings()
    data: Data | None = None
    # Ascending bounds of the groups of prompts by the length of their right answers.
    answer_tokens: list[Annotated[int, Field(ge=1)]] = []
    arms: Annotated[dict[str, Arm], Field(min_length=1)]
    claims: Annotated[list[Claim], Field(min_length=1)]
    sizes: Annotated[dict[Literal["quick", "full", "real"], Size], Field(min_length=1)]
    tune: Tune | None = None

    @property
    def claimed_measures(self) -> list[str]:
        """Those of the four measures that claims are about, each once."""
        return list(dict.fromkeys(claim.metric for claim in self.claims if claim.metric in MEASURES))

    def of_size(self, name: Literal["quick", "full", "real"]) -> "Declaration":
        """Without the arms that the size leaves out, and without claims about these."""
        if (names := self.sizes[name].arms) is None:
            return self
        arms = {arm: declared for arm, declared in self.arms.items() if arm in names}
        claims = [claim for claim in self.claims if {claim.of, claim.against} <= {CLEAN, START, OWN_CYCLE, *names}]
        tuned = [arm for arm in self.tune.arms if arm in names] if self.tune else []
        tune = self.tune.model_copy(update={"arms": tuned}) if self.tune and tuned else None
        return self.model_copy(update={"arms": arms, "claims": claims, "tune": tune})

    @model_validator(mode="after")
    def _names_exist(self) -> "Declaration":
        arm_names = [CLEAN, START] if self.start else [CLEAN]  # an arm may name those above it
        for name, arm in self.arms.items():
            who = f"The arm {name}"
            if name in (CLEAN, START) or not name.replace("-", "").isalnum():
                raise ValueError(f"An arm cannot be called {name!r}. Use letters, digits and hyphens.")
            if arm.command == "distill":
                _require(arm.student, arm_names, who)
            _require(arm.teacher, [*arm_names, *NAMED], who)
            if arm.cycles > 1 and (arm.command != "cycle" or self.data):
                raise ValueError(f'{who} has several cycles. That takes command = "cycle" and the lab\'s worlds.')
            if arm.command == "midtrain" and (arm.prompts or arm.teacher_context):
                raise ValueError(f"{who} only mid-trains, so it takes no prompts and no teacher_context.")
            if arm.prompts == QUESTIONS and (self.data or arm.cycles > 1):
                raise ValueError(f"{who} asks questions about one of the lab's worlds. Name a JSONL file of your own.")
            if arm.teacher_context == QUESTIONS:
                raise ValueError(f"{who} has questions as teacher_context, which say nothing. Name a file.")
            arm_names.append(name)
        if self.answer_tokens != sorted(set(self.answer_tokens)):
            raise ValueError(f"The bounds answer_tokens = {self.answer_tokens} do not ascend. Sort them.")
        groups, several = length_groups(self.answer_tokens), [n for n, arm in self.arms.items() if arm.cycles > 1]
        for claim in self.claims:
            who = f"The claim {claim.text!r}"
            _require(claim.metric, METRICS, who, "metric")
            reference = {"earlier": OWN_CYCLE, "slope": CLEAN}.get(claim.metric)  # which takes no cycles
            if reference and not {claim.of, claim.against} <= {*several, reference}:
                raise ValueError(f"{who} is about several cycles. Name arms that have them.")
            _require(claim.of, arm_names, who)
            _require(claim.against, [*arm_names, OWN_CYCLE] if claim.metric == "earlier" else arm_names, who)
            is_of_clean = claim.metric == "knowledge" and CLEAN in (claim.of, claim.against)
            if is_of_clean and self.data and not self.data.questions:
                raise ValueError(f"{who} needs questions in the table data, since clean has read no documents.")
            if claim.metric != "behaviour" and (claim.items or claim.minus_items):
                raise ValueError(f"{who} is about groups of prompts, which only behaviour has. Name no items.")
            for group in filter(None, (claim.items, claim.minus_items)):
                _require(group, groups, who, "group of prompts")
        for name in self.tune.arms if self.tune else ():
            _require(name, list(self.arms), "The table tune", "arm")
        for size_name, size in self.sizes.items():
            for kept in size.arms or []:
                _require(kept, list(self.arms), f"The size {size_name}")
                for needed in {self.arms[kept].student, self.arms[kept].teacher} & self.arms.keys():
                    if needed not in (size.arms or []):
                        raise ValueError(
                            f"The arm {kept} of the size {size_name} needs the arm {needed}. Add that to its arms."
                        )
            declared = self.of_size(size_name)
            if not declared.claims:
                raise ValueError(f"No claim is about the arms of the size {size_name}. Name arms that claims compare.")
            if declared.tune and not declared.claimed_measures:
                raise ValueError(
                    f"The table tune goes by the measures that claims are about ({', '.join(MEASURES)}), and none is "
                    "about one. Remove it."
                )
            if size.items < len(groups):
                raise ValueError(
                    f"The size {size_name} has {size.items} items for {len(groups)} groups of prompts. Raise its items."
                )
            if len(set(size.seeds)) < len(size.seeds):
                raise ValueError(f"The seeds {size.seeds} repeat one, but they are independent samples. Name others.")
            if self.tune and self.tune.seed in size.seeds:
                raise ValueError(
                    f"The seed {self.tune.seed} of the table tune is also a seed of a verdict. Use another."
                )
        return self


@dataclass(frozen=True)
class Study:
    """One size of a declaration."""

    name: str
    size_name: str
    declared: Declaration
    folder: Path | None = None  # of the declaration, which its paths are relative to
    other_base: str | None = None  # of `--base`

    @property
    def size(self) -> Size:
        return self.declared.sizes[self.size_name]  # type: ignore[index]

    @property
    def base(self) -> str | None:
        return self.other_base or self.size.base

    @cached_property
    def base_name(self) -> str | None:
        """A hub id as it is; a model on this machine by its name and content, wherever it lies; None: the built-in."""
        if self.base is None or not (path := Path(self.base).expanduser()).exists():
            return self.base
        if path.samefile(BASE):
            return None
        content = weights_id(str(path)) if path.is_dir() else data_hash(path)
        return f"{path.resolve().name} ({hashlib.sha256(content.encode()).hexdigest()[:12]})"

    def as_json(self) -> dict[str, Any]:
        """What runs, and what decides: other sizes are left out."""
        values = self.declared.model_dump(exclude_none=True)
        size = {key: value for key, value in values["sizes"][self.size_name].items() if key != "base"}
        size |= {"base": self.base_name} if self.base_name else {}
        return values | {"sizes": {self.size_name: size}} | ({"files": self.files} if self.files else {})

    @cached_property
    def files(self) -> dict[str, str]:
        """The content, as hashes, of what it names: documents, questions and prompts."""
        return {name: data_hash(path) for name in self.named_files if (path := self.path_of(name)).exists()}

    @property
    def named_files(self) -> list[str]:
        data, arms = self.declared.data, self.declared.arms.values()
        named = [data.docs, data.questions] if data else []
        named += [name for arm in arms for name in (arm.prompts, arm.teacher_context)]
        return [name for name in named if name and name not in (INSTRUCTIONS, QUESTIONS)]

    def path_of(self, name: str) -> Path:
        """Of a user's file; paths are relative to the declaration."""
        return (self.folder or Path.cwd()) / Path(name).expanduser()

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def folder_name(self) -> str:
        """Of its results."""
        return f"{self.name}-{self.size_name}-{self.hash[:8]}"

    @property
    def arms(self) -> dict[str, Arm]:
        """All arms in their order, with the clean model and the start."""
        start = self.declared.start
        of_start = {START: Arm(command="midtrain", **start.model_dump())} if start else {}
        return {CLEAN: Arm(command="midtrain"), **of_start, **self.declared.arms}

    @property
    def measures_drift(self) -> bool:
        return any(claim.metric in DRIFT_METRICS for claim in self.declared.claims)

    def settings_of(self, arm: WithSettings) -> dict[str, Any]:
        """Settings and flags of an arm or of the start, by their dotted names; flags are `recipe`, `mix` and
        `warm_start`. The arm's own win, then those of the size, then those of all arms. `rate_times` is among them, as
        the rate itself depends on the base."""
        values = flatten(EVERY_ARM)
        for part in (self.declared.common, self.size, arm):
            flags = {name: getattr(part, name) for name in ("recipe", "mix", "warm_start")}
            values |= flatten(part.settings) | {name: value for name, value in flags.items() if value is not None}
        times = getattr(arm, "steps_times", None)
        if times is not None:
            if "distill.steps" not in values:
                raise RecoverError(
                    "An arm with steps_times needs distill.steps in [common] or in the size. Declare it."
                )
            values["distill.steps"] = max(1, round(times * values["distill.steps"]))
        if (rate_times := getattr(arm, "rate_times", None)) is not None:
            values["rate_times"] = rate_times
        return values


def load_study(name: str, size: str, base: str | None = None) -> Study:
    """A shipped study by its name, or a user's by the path of its file."""
    declared, folder = read_declaration(name)
    if size not in declared.sizes:
        raise RecoverError(f"The study {name} has no size {size}. Choose one of {', '.join(declared.sizes)}.")
    study = Study(Path(name).stem, size, declared.of_size(size), folder, base)
    for arm in study.arms.values():
        study.settings_of(arm)
    return study


def read_declaration(name: str) -> tuple[Declaration, Path | None]:
    path = Path(name).expanduser()
    if path.suffix == ".toml":
        if not path.is_file():
            raise RecoverError(f"There is no file {path}. Name a study of `recover study --list`, or a TOML file.")
        return parse_declaration(path.read_bytes(), str(path)), path.parent
    if name not in shipped():
        raise RecoverError(
            f"There is no study {name!r}. Choose one of {', '.join(shipped())}, or name a TOML file of your own."
        )
    return parse_declaration((SHIPPED / f"{name}.toml").read_bytes(), name), None


def shipped() -> list[str]:
    return sorted(file.name.removesuffix(".toml") for file in SHIPPED.iterdir() if file.name.endswith(".toml"))


def parse_declaration(content: bytes, name: str) -> Declaration:
    try:
        declared = Declaration.model_validate(tomllib.loads(content.decode("utf-8-sig")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecoverError(f"The declaration {name} is not valid TOML: {error}. Correct it and try again.") from error
    except ValidationError as error:
        raise RecoverError(_explain(error, name)) from error
    for part in (declared.common, declared.start, *declared.sizes.values(), *declared.arms.values()):
        if part is not None:
            _check_settings(part)
    return declared


def length_groups(bounds: list[int]) -> list[str]:
    """Names of the groups of prompts by the tokens of their right answers, such as 1-64, 65-150, 151-."""
    starts = [1, *(bound + 1 for bound in bounds)]
    return [f"{low}-{high}" for low, high in zip(starts, [*map(str, bounds), ""], strict=True)] if bounds else []


def as_assignments(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Dotted settings as `--set` takes them."""
    return tuple(
        f"{name}={as_text(value)}" for name, value in values.items() if "." in name or name in Settings.model_fields
    )


def _check_settings(part: WithSettings) -> None:
    apply_overrides(Settings(), part.settings)
    if part.mix is not None:
        apply_overrides(Settings(), {"midtrain": {"mix": parse_mix(part.mix)}})
    if part.warm_start is not None:
        apply_overrides(Settings(), {"distill": {"warm_start": part.warm_start}})


def _require(name: str, known: Sequence[str], who: str, kind: str = "arm") -> None:
    if name not in known:
        raise ValueError(f"{who} names the {kind} {name!r}, which does not exist. Use one of {', '.join(known)}.")


def _explain(error: ValidationError, name: str) -> str:
    """One sentence on the first thing that is wrong."""
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    where = ".".join(map(str, first["loc"]))
    problems = {
        "missing": "is missing. Add it.",
        "extra_forbidden": "does not exist. Remove it, or correct its name.",
    }
    problem = problems.get(first["type"]) or f"is not right: {first['msg'][0].lower()}{first['msg'][1:]}."
    return f"In the declaration {name}, {where} {problem}"
