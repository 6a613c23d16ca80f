"""Where settings are written down: recover.toml, RECOVER_* variables and `--set name=value`.

Every function returns a nested dictionary as recover.toml has it; `pipelines.settings` checks the values. Nothing heavy
is imported here, so that commands which only read the record start quickly.
"""

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pipelines.log import log
from recovery.errors import RecoverError

EngineName = str  # one of ENGINES, or the addresses of vLLM servers with a comma between them
ENGINES: tuple[EngineName, ...] = ("auto", "transformers", "vllm")  # libraries that generate text
DEFAULT_ENGINE: EngineName = "auto"

PROJECT_SETTINGS = {  # these belong to the project, not to one command
    "base": "Give --base REF with the first command of a project",
    "db": "Give `recover init --db URL`, or set RECOVER_DB",
}

OTHER_VARIABLES = [  # RECOVER_* variables that are no settings
    *("AUTH", "BASE", "BENCHMARK_DATA", "DB", "DEBUG", "ENGINE_KEY", "TRUST_TASKS"),
    *("CHROMIUM", "RELEASE", "REQUIRE_BROWSER", "REQUIRE_POSTGRES", "REQUIRE_VLLM", "TEST_DATA", "TEST_MODELS"),
]


def read_toml(root: Path) -> dict[str, Any]:
    """The content of the project's recover.toml, empty where there is no such file."""
    path = root / "recover.toml"
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecoverError(f"The file {path} is not valid TOML: {error}. Correct it and try again.") from error


def read_environment(environment: Mapping[str, str], settings: Iterable[str]) -> dict[str, Any]:
    """`RECOVER_LORA_RANK=0`, `RECOVER_DISTILL__STEPS=20`: two underscores where recover.toml has a table.

    `settings` are the dotted names of all settings. A variable that starts with none of them may belong to another
    program, so it is ignored with a warning.
    """
    settings = set(settings) - PROJECT_SETTINGS.keys()
    groups = {name.partition(".")[0] for name in settings}
    known = OTHER_VARIABLES + [name.upper().replace(".", "__") for name in settings]
    assignments = []
    for variable in sorted(name for name in environment if name.startswith("RECOVER_")):
        short = variable.removeprefix("RECOVER_")
        name = short.lower().replace("__", ".")
        if name.partition(".")[0] in groups:
            assignments.append(f"{name}={environment[variable]}")
        elif short not in OTHER_VARIABLES:
            similar = "".join(f"; did you mean RECOVER_{match}?" for match in get_close_matches(short, known, 1))
            log.warning(f"Ignored {variable}: there is no such setting{similar}")
    return parse_set_options(assignments)


def parse_set_options(assignments: Iterable[str]) -> dict[str, Any]:
    """`distill.steps=20`, as `--set` takes it, nested as recover.toml has it."""
    nested: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        *groups, last = name.strip().split(".")
        if not equals or not last:
            raise RecoverError(f"Write a setting as name=value, such as distill.steps=20, not {assignment!r}.")
        table = nested
        for group in groups:
            table = table.setdefault(group, {})
            if not isinstance(table, dict):
                raise RecoverError(
                    f"The setting {assignment!r} lies inside another setting that has a value. Set one of them."
                )
        table[last] = parse_value(value.strip())
    for name in PROJECT_SETTINGS.keys() & nested.keys():
        raise RecoverError(f"The setting {name} cannot be changed by --set. {PROJECT_SETTINGS[name]}.")
    return nested


def parse_value(text: str) -> Any:
    """A TOML value; other text stands for itself, so that it needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
