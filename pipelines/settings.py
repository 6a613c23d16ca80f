"""What a stage is told, where it comes from, and defaults that depend on the model's size.

`recover.toml` in the project's folder, then the command line's flags. Each value that is not the default is announced.
"""

import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from recovery.errors import RecoverError

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
    lora_rank: int | None = 128  # None: all weights are trained
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
        lora_rank=None,
        midtrain=Midtrain(learning_rate=1e-3, epochs=8, window=256, rows=16),
        distill=Distill(learning_rate=5e-4, steps=20, max_new_tokens=300, prompts=1280),
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
    known = {f.name: getattr(settings, f.name) for f in fields(settings)}
    changes = {}
    for name, value in wanted.items():
        if name not in known:
            raise RecoverError(f"there is no setting {where}{name!r}; known here are {', '.join(known)}")
        present = known[name]
        if isinstance(value, dict) and hasattr(present, "__dataclass_fields__"):
            changes[name] = merged(present, value, f"{where}{name}.")
        elif present is not None and not _fits(value, present):
            raise RecoverError(f"{where}{name} should be like {present!r}, not {value!r}")
        else:
            changes[name] = value
    return replace(settings, **changes)


def _fits(value: Any, present: Any) -> bool:
    numbers = isinstance(value, int | float) and isinstance(present, int | float)
    return type(value) is type(present) or (numbers and not isinstance(value, bool) and not isinstance(present, bool))


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
