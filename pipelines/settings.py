"""What a stage is told, where it comes from, and defaults that depend on the model's size.

`recover.toml` in the project's folder, then `RECOVER_*`, then the command line. Each value that is not the default is
announced.
"""

import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from recovery.errors import RecoverError

MAY_BE_ZERO = {"lora_rank", "midtrain.reword", "distill.probe_every"}
SHORT = {"lr": "learning_rate"}  # what everybody types
AUTO = "auto"
ENGINES = ("transformers", "vllm")
USUAL_SHARE = 0.3  # of the way back in weights: what the lab's measurements say (docs/benchmarks.md)
USUAL_AGAIN = 0.2  # to the weights that earlier cycles left, where little was lost (docs/log.md)
SMALL = 100_000_000  # parameters up to which all weights are trained: an adapter would be no smaller


@dataclass(frozen=True)
class Midtrain:
    recipe: str = "midtrain"
    learning_rate: float = 2e-4
    epochs: float = 3.0
    window: int = 2048
    rows: int = 16
    across: bool = True  # a token may attend to the documents before its own in the window
    replay: str = "0"  # share of what is taught that is the clean base's own answers to its own prompts; "auto": tries
    reword: int = 0  # times that the clean base writes each passage in other words, to be read beside it
    rehearse: float = 0.3  # share of what is read that comes from earlier cycles' documents, where there are any
    recollect: float = 0.0  # share of what is read that the clean base wrote on an empty page: what it knew before
    recollections: int = 2048  # how many such texts there are
    soft: bool = True  # what a model wrote or knows already is taught by all that it would say, which takes its memory
    max_steps: int | None = None

    def steps(self, windows: int, rows: int) -> int:
        """To read so many windows as often as is wished, so many of them a step."""
        steps = max(1, math.ceil(self.epochs * windows / rows))
        return min(steps, self.max_steps or steps)


@dataclass(frozen=True)
class Distill:
    recipe: str = "opd"
    learning_rate: float = 1e-4
    steps: int = 100
    rows: int = 64
    max_new_tokens: int = 1024
    prompts: int = 2048  # how many the base writes when none are given
    remember: float = 0.33  # share of the prompts that are openings of earlier documents, where a router is the teacher
    warm_start: str = "off"  # a share of the way back in weights before the first step; "auto", "usual": see warm_share
    probe_every: int = 10  # steps between two looks at the probe set; 0: none, so all steps are taken
    probe_items: int = 300
    max_steps: int | None = None
    max_minutes: float | None = None
    max_flops: float | None = None


@dataclass(frozen=True)
class Gate:
    behaviour_margin: float = 0.03
    keep_knowledge: float = 0.95
    keep_earlier: float = 0.95  # of what each earlier cycle ended with, on its own questions


@dataclass(frozen=True)
class Settings:
    base: str | None = None
    db: str | None = None  # where the record is kept; the project's own SQLite file unless said
    lora_rank: int = 128  # 0: all weights are trained
    bf16: bool = True  # unless the processor only imitates it: then float32 is several times faster
    engine: str = "transformers"  # who writes the student's rollouts: or "vllm"
    tokens_at_once: int = 8192  # of one pass while training; the result does not depend on it, memory does
    checkpointing: bool = True  # layers are computed a second time for the gradient, so that far less is kept
    keep_documents: bool = True  # the text that was read stays in .recover/, to be rehearsed and to resume from
    report_to: str = "none"  # also told what a run says: "wandb", "trackio" or "tensorboard"
    save_minutes: float = 2.0  # between two saves of a run that is going on
    midtrain: Midtrain = Midtrain()
    distill: Distill = Distill()
    gate: Gate = Gate()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def defaults_for(parameters: int) -> Settings:
    """Large models: an adapter, at rates others report for LoRA. Small ones: all weights, at rates measured here.
    bfloat16 where the machine has units for it."""
    from recovery.models.precision import has_bfloat16  # torch takes a second; reading settings needs none of it

    if parameters > SMALL:
        return Settings(bf16=has_bfloat16())
    return Settings(
        lora_rank=0,
        bf16=has_bfloat16(),
        checkpointing=False,
        midtrain=Midtrain(learning_rate=2e-3, epochs=8, window=256, rows=16, replay="0.3", recollect=0.3),
        distill=Distill(
            learning_rate=5e-4, steps=40, max_new_tokens=320, prompts=2560, warm_start="usual", probe_items=600
        ),
    )


def read_toml(root: Path) -> dict[str, Any]:
    path = root / "recover.toml"
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecoverError(f"{path} is not valid TOML: {error}") from error


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """`RECOVER_LORA_RANK=0`, `RECOVER_DISTILL__STEPS=20`: two underscores where the file has a table."""
    kinds, wanted = get_type_hints(Settings), {}
    for variable, value in environment.items():
        name = variable.removeprefix("RECOVER_").lower()
        group = name.partition("__")[0]
        if variable.startswith("RECOVER_") and (name in kinds or (group in kinds and "__" in name)):
            wanted[name.replace("__", ".")] = value
    return from_dotted(f"{name}={value}" for name, value in wanted.items() if name not in ("base", "db"))


def from_dotted(said: Iterable[str]) -> dict[str, Any]:
    """`distill.steps=20` as `--set` takes it, nested as the file has it."""
    nested: dict[str, Any] = {}
    for each in said:
        name, given, value = each.partition("=")
        *groups, last = name.strip().split(".")
        if not given or not last:
            raise RecoverError(f"a setting is written name=value, such as distill.steps=20, not {each!r}")
        place = nested
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise RecoverError(f"{each!r} goes on where another setting has its value")
        place[last] = _value(value.strip())
    return nested


def _not_of_the_project(nested: dict[str, Any]) -> dict[str, Any]:
    """What a project is begun with is no setting of one command."""
    for name, instead in (("base", "--base REF"), ("db", "`recover init --db URL`, or RECOVER_DB")):
        if name in nested:
            raise RecoverError(f"{name} is not changed by --set: give {instead} where the project begins")
    return nested


def _value(text: str) -> Any:
    """As the file would have it; what is no TOML value is the text itself, so that words need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def settled(parameters: int, root: Path, flags: dict[str, Any], dotted: Iterable[str] = ()) -> tuple[Any, Settings]:
    """(the settings, the defaults they differ from): file, then environment, then flags, then `--set`."""
    usual = settings = defaults_for(parameters)
    for wanted in (read_toml(root), from_environment(os.environ), flags, _not_of_the_project(from_dotted(dotted))):
        settings = merged(settings, wanted)
    _check(settings)
    return settings, usual


def _check(settings: Settings) -> None:
    if settings.engine not in ENGINES:
        raise RecoverError(f"there is no engine {settings.engine!r}; choose one of {', '.join(ENGINES)}")
    if not settings.midtrain.epochs:
        raise RecoverError("midtrain.epochs = 0 would read nothing; give a number above 0")
    for name, share in (
        ("midtrain.replay", replay_share(settings)),
        ("midtrain.rehearse", settings.midtrain.rehearse),
        ("midtrain.recollect", settings.midtrain.recollect),
        ("distill.remember", settings.distill.remember),
        ("distill.warm_start", warm_share(settings)),
    ):
        if not 0 <= share < 1:
            raise RecoverError(f"{name} is a share, at least 0 and below 1, not {share}")
    shares = settings.midtrain.rehearse, settings.midtrain.recollect
    if sum(shares) >= 1:
        raise RecoverError(
            f"midtrain.rehearse ({shares[0]:g}) and midtrain.recollect ({shares[1]:g}) leave nothing to the new "
            "documents; together they must be below 1 (--rehearse 0 leaves out earlier cycles' documents, "
            "--recollect 0 what the clean base wrote)"
        )


def rows_beside(rows: int, shares: Iterable[float]) -> list[int]:
    """How many of the rows each share comes to: one at least, and one at least is left over, where the rows allow."""
    shares = list(shares)
    taken = [max(round(share * rows), int(share > 0)) for share in shares]
    return taken if sum(taken) < rows else [int(share * rows) for share in shares]


def warm_share(settings: Settings) -> float:
    """The share that is asked for; 0 where none is, where it is to be found ("auto"), or where it is the model's own
    ("usual": one from outside may have begun anywhere, and half of one model and half of another is neither)."""
    said = settings.distill.warm_start
    try:
        return 0.0 if said in ("off", "usual", AUTO) else float(said)
    except ValueError:
        raise RecoverError(f"distill.warm_start is off, auto, usual or a share such as 0.3, not {said!r}") from None


def replay_share(settings: Settings) -> float:
    """The share that is asked for; 0 where none is, or where it is to be found ("auto")."""
    said = settings.midtrain.replay
    try:
        return 0.0 if said == AUTO else float(said)
    except ValueError:
        raise RecoverError(f"midtrain.replay is auto or a share such as 0.3, not {said!r}") from None


def merged(settings: Any, wanted: dict[str, Any], where: str = "") -> Any:
    kinds = get_type_hints(type(settings))
    changes = {}
    for said, value in wanted.items():
        name = SHORT.get(said, said) if SHORT.get(said) in kinds else said
        if name not in kinds:
            raise RecoverError(f"there is no setting {where}{name!r}; known here are {', '.join(kinds)}")
        if is_dataclass(kinds[name]):
            if not isinstance(value, dict):
                raise RecoverError(f"{where}{name} is a group of settings; write it as a [{where}{name}] table")
            changes[name] = merged(getattr(settings, name), value, f"{where}{name}.")
        else:
            changes[name] = _fitting(value, kinds[name], f"{where}{name}")
    return replace(settings, **changes)


def _fitting(value: Any, kind: Any, name: str) -> Any:
    """The value, if it is of the setting's kind; numbers are never negative, and counts never nothing."""
    kinds = get_args(kind) or (kind,)
    if float in kinds and type(value) is int:
        value = float(value)
    if str in kinds and type(value) in (int, float):  # a share where a word may stand
        value = str(value)
    if type(value) not in kinds:
        wanted = " or ".join(k.__name__ for k in kinds if k is not type(None))
        raise RecoverError(f"{name} should be of the kind {wanted}, not {value!r}")
    least = 0 if name in MAY_BE_ZERO or isinstance(value, float) else 1
    if type(value) is float and not math.isfinite(value):
        raise RecoverError(f"{name} should be a number, not {value}")
    if type(value) in (int, float) and value < least:
        raise RecoverError(f"{name} should be at least {least}, not {value}")
    return value


def differences(settings: Any, default: Any, where: str = "") -> list[str]:
    """`name = value (default …)` for each setting that is not the default."""
    lines = []
    for f in fields(settings):
        value, usual = getattr(settings, f.name), getattr(default, f.name)
        if hasattr(value, "__dataclass_fields__"):
            lines += differences(value, usual, f"{where}{f.name}.")
        elif value != usual:
            lines.append(f"{where}{f.name} = {value} (default {usual})")
    return lines
