"""What a stage is told, where it comes from, and defaults that depend on the model's size.

`recover.toml` in the project's folder, then the command line's flags. Each value that is not the default is announced.
"""

import tomllib
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from recovery.errors import RecoverError

MAY_BE_ZERO = {"lora_rank"}
SMALL = 100_000_000  # parameters up to which all weights are trained: an adapter would be no smaller


@dataclass(frozen=True)
class Midtrain:
    recipe: str = "midtrain"
    learning_rate: float = 2e-4
    epochs: float = 3.0
    window: int = 2048
    rows: int = 16
    max_steps: int | None = None


@dataclass(frozen=True)
class Distill:
    recipe: str = "opd"
    learning_rate: float = 1e-4
    steps: int = 100
    rows: int = 64
    max_new_tokens: int = 1024
    prompts: int = 2048  # how many the base writes when none are given
    max_steps: int | None = None


@dataclass(frozen=True)
class Gate:
    behaviour_margin: float = 0.03
    keep_knowledge: float = 0.95


@dataclass(frozen=True)
class Settings:
    base: str | None = None
    lora_rank: int = 128  # 0: all weights are trained
    bf16: bool = True
    midtrain: Midtrain = Midtrain()
    distill: Distill = Distill()
    gate: Gate = Gate()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def defaults_for(parameters: int) -> Settings:
    """Large models: an adapter, at rates others report for LoRA. Small ones: all weights, at rates measured here."""
    if parameters > SMALL:
        return Settings()
    return Settings(
        lora_rank=0,
        midtrain=Midtrain(learning_rate=1e-3, epochs=8, window=256, rows=16),
        distill=Distill(learning_rate=5e-4, steps=30, max_new_tokens=320, prompts=1280),
    )


def read_toml(root: Path) -> dict[str, Any]:
    path = root / "recover.toml"
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecoverError(f"{path} is not valid TOML: {error}") from error


def merged(settings: Any, wanted: dict[str, Any], where: str = "") -> Any:
    kinds = get_type_hints(type(settings))
    changes = {}
    for name, value in wanted.items():
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
    if type(value) not in kinds:
        wanted = " or ".join(k.__name__ for k in kinds if k is not type(None))
        raise RecoverError(f"{name} should be of the kind {wanted}, not {value!r}")
    least = 0 if name in MAY_BE_ZERO or isinstance(value, float) else 1
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
