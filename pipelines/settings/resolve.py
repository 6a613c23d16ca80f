"""From defaults, recover.toml, RECOVER_* variables, flags and `--set` to checked settings; later sources win."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pipelines.settings.defaults import defaults_for
from pipelines.settings.mix import parse_mix
from pipelines.settings.schema import Settings
from pipelines.settings.sources import EngineName, parse_set_options, read_environment, read_toml
from recovery.errors import RecoverError


class Resolved(NamedTuple):
    settings: Settings
    default: Settings  # by the size of the model and the recipe
    given: dict[str, Any]  # the settings that some source has, by their dotted names


def resolve_settings(
    parameters: int, root: Path, flags: Mapping[str, Any], assignments: Iterable[str] = ()
) -> Resolved:
    """The settings of a command, and the defaults they differ from. `assignments` are those of `--set`; `flags` are
    nested like recover.toml, and `midtrain.mix` may be the text of `--mix`."""
    return resolve_layers(parameters, [*_lasting_sources(root), flags, parse_set_options(assignments)])


def engine_of(root: Path, flag: EngineName | None) -> EngineName:
    """The engine of a command that trains nothing: of the flag, else of the environment, else of recover.toml."""
    sources = [*_lasting_sources(root), {"engine": flag} if flag else {}]
    return apply_overrides(Settings(), *({"engine": each["engine"]} for each in sources if "engine" in each)).engine


def _lasting_sources(root: Path) -> list[dict[str, Any]]:
    return [read_toml(root), read_environment(os.environ, flatten(Settings().model_dump()))]


def resolve_layers(parameters: int, sources: Iterable[Mapping[str, Any]]) -> Resolved:
    """The same from sources of one's own; later ones win."""
    usual = defaults_for(parameters)
    layers = [_expand_mix(source) for source in sources]
    asked = apply_overrides(usual, *layers)
    named = {name for layer in layers for name in flatten(layer)}
    dials = {name: value for name, value in asked.distill.dials.items() if f"distill.{name}" in named}
    of_recipe = defaults_for(parameters, asked.distill.recipe, dials)
    default = apply_overrides(of_recipe, {"distill": {"recipe": usual.distill.recipe}})
    settings = apply_overrides(of_recipe, *layers)
    given = {name: value for name, value in flatten(settings.model_dump()).items() if name in named}
    return Resolved(settings, default, given)


def change_recipe(settings: Settings, recipe: str, parameters: int, given: Iterable[str] = ()) -> Settings:
    """The settings for another recipe of distillation: with its own defaults, but for settings that were given."""
    former, chosen = (defaults_for(parameters, name).distill for name in (settings.distill.recipe, recipe))
    kept = {name for name, value in chosen if value == getattr(former, name)}
    kept |= {name.removeprefix("distill.") for name in given if name.startswith("distill.")}
    return apply_overrides(settings, {"distill": {**chosen.model_dump(exclude=kept), "recipe": recipe}})


def check_toml(values: Mapping[str, Any]) -> None:
    """Raise RecoverError if recover.toml has a setting that does not exist, or a value that does not fit."""
    apply_overrides(Settings(), _expand_mix(values))


def apply_overrides(settings: Settings, *layers: Mapping[str, Any]) -> Settings:
    """The settings with some of them replaced, nested like recover.toml; later layers win."""
    values = settings.model_dump()
    for layer in layers:
        values = _merge(values, layer)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise RecoverError(_explain(error.errors()[0])) from error


def differences(settings: BaseModel, default: BaseModel) -> list[str]:
    """`name = value (default …)` for each setting that is not the default."""
    defaults = flatten(default.model_dump())
    return [
        f"{name} = {as_text(value)} (default {as_text(defaults[name])})"
        for name, value in flatten(settings.model_dump()).items()
        if value != defaults[name]
    ]


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def as_text(value: Any) -> str:
    """A value as recover.toml has it, but texts without quotes."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _expand_mix(layer: Mapping[str, Any]) -> Mapping[str, Any]:
    midtrain = layer.get("midtrain")
    if not isinstance(midtrain, Mapping) or not isinstance(midtrain.get("mix"), str):
        return layer
    return {**layer, "midtrain": {**midtrain, "mix": parse_mix(midtrain["mix"])}}


def _merge(values: dict[str, Any], changes: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    merged = dict(values)
    for name, value in changes.items():
        is_group = isinstance(merged.get(name), dict)
        if is_group and not isinstance(value, Mapping):
            path = prefix + name
            raise RecoverError(f"The setting {path} is a group of settings. Write it as a [{path}] table.")
        merged[name] = _merge(merged[name], value, f"{prefix}{name}.") if is_group else value
    return merged


def _explain(error: ErrorDetails) -> str:
    """One sentence on the first setting that does not fit."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    group: type[BaseModel] = Settings
    field: FieldInfo | None = None
    path: list[str] = []
    for part in map(str, error["loc"]):
        if field is not None and not _is_group(field.annotation):
            break  # what follows names one member of a union
        group = field.annotation if field is not None and _is_group(field.annotation) else group
        field = group.model_fields.get(part)
        path.append(part)
    name = ".".join(path)
    if field is None:
        return f"There is no setting {name}. Known here: {', '.join(group.model_fields)}."
    return f"The setting {name} must be {_requirement(field)}, not {error['input']!r}."


def _is_group(kind: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _requirement(field: FieldInfo) -> str:
    """What a value must be; for a type like `Count | None`, what its first member must be."""
    if field.description:
        return field.description
    kind = get_args(field.annotation)[0] if get_args(field.annotation) else field.annotation
    described = next((m.description for m in getattr(kind, "__metadata__", ()) if isinstance(m, FieldInfo)), None)
    return described or ("true or false" if kind is bool else "text")
