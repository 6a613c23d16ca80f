"""What a base names in its `recover.json` to be measured by: tasks by name, and files that lie where it says."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from evals.measurement_keys import data_hash
from recovery.errors import RecoverError
from recovery.models.students import checkpoint_metadata

OF_LM_EVAL = (".yaml", ".yml")
FILES = (".jsonl", *OF_LM_EVAL)
TRUST = "RECOVER_TRUST_TASKS"


def tasks(named: str) -> list[str]:
    return [task.strip() for task in named.split(",") if task.strip()]


def is_file(task: str) -> bool:
    """By how it ends: a name of lm-eval's must not turn into whatever lies about in the folder of the moment."""
    return Path(task).suffix in FILES


def placed(base: str | Path) -> dict[str, str]:
    """Per suite its tasks; a file's path counts from the folder of the `recover.json` that names it."""
    folder, suites = Path(base).absolute(), checkpoint_metadata(base).get("suites") or {}
    if not isinstance(suites, dict) or not all(isinstance(named, str) for named in suites.values()):
        raise RecoverError(
            f'"suites" in {folder / "recover.json"} should be like {{"behaviour": "ifeval,house.jsonl"}}'
        )
    return {
        suite: ",".join(str(folder / task) if is_file(task) else task for task in tasks(named))
        for suite, named in suites.items()
    }


def suites_of(base: str | Path) -> dict[str, str]:
    """The same, and every file is there."""
    suites, folder = placed(base), Path(base).absolute()
    files = files_of(suites)
    if files and "," in str(folder):
        raise RecoverError(f"{folder} has a comma in its path, which parts the tasks of a suite; rename that folder")
    for file in files:
        if not file.is_file():
            raise RecoverError(
                f"{file} is not there, which {folder / 'recover.json'} names under suites: put it there, or mend the "
                "name (a path counts from the folder of that recover.json)"
            )
        if _is_yaml(file) and os.environ.get(TRUST) != "1":
            raise RecoverError(
                f"{folder / 'recover.json'} names {file.name}, an lm-eval task of its own, which may run any Python: "
                f"set {TRUST}=1 if you trust whoever wrote it with your machine, or take it out of suites"
            )
    return suites


def files_of(suites: Mapping[str, str]) -> list[Path]:
    return [Path(task) for named in suites.values() for task in tasks(named) if is_file(task)]


def content_of(named: str) -> str:
    """The tasks, each file by what it holds in place of where it lies: another text where something else is asked."""
    return ",".join(f"{Path(task).name}:{_hash(Path(task))}" if is_file(task) else task for task in tasks(named))


def _hash(file: Path) -> str:
    return "/".join(data_hash(each) for each in (_with_what_it_names(file, {}) if _is_yaml(file) else [file]))


def _is_yaml(file: Path) -> bool:
    return file.suffix in OF_LM_EVAL


def _with_what_it_names(file: Path, seen: dict[Path, None]) -> list[Path]:
    """A task of lm-eval's, and the files in it: what it includes, its data, its functions."""
    seen[file.resolve()] = None
    for other in _files_in(file):
        if other.resolve() not in seen and _is_yaml(other):
            _with_what_it_names(other, seen)
        seen[other.resolve()] = None
    return list(seen)


def _files_in(file: Path) -> Iterator[Path]:
    try:
        said = list(yaml.parse(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader))  # runs nothing of it
    except (OSError, ValueError, yaml.YAMLError):
        return  # whoever reads it to measure by it says what is wrong
    for event in said:
        if isinstance(event, yaml.ScalarEvent):
            module = event.value.rpartition(".")[0].replace(".", "/") + ".py"
            name = module if event.tag == "!function" else event.value
            # What a file includes counts from its own folder; its data, for lm-eval, from the current one.
            yield from (place for place in (file.parent / name, Path(name)) if os.path.isfile(place))
