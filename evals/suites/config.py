"""The suites that a base's `recover.json` configures: per suite a comma-separated list of tasks (a task spec)."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from evals.benchmarks import BENCHMARKS
from evals.measurement_keys import data_hash
from evals.results import HEADLINES
from recovery.errors import RecoverError
from recovery.models.students import checkpoint_metadata

SUITES = (*HEADLINES, "retention")
YAML_SUFFIXES = (".yaml", ".yml")
FILE_SUFFIXES = (".jsonl", *YAML_SUFFIXES)
LAB_TASKS = {"behaviour": ("ifeval", "refusals"), "retention": ("arithmetic", "own_world")}  # that `lab` stands for
BUILDERS = ("json", "csv", "parquet", "text", "arrow")  # names that `dataset_path` has for formats
TRUST = "RECOVER_TRUST_TASKS"  # environment variable that allows lm-eval YAML files, which may run code


def task_names(task_spec: str) -> list[str]:
    return [task.strip() for task in task_spec.split(",") if task.strip()]


def is_task_file(task: str) -> bool:
    """Whether the task is a file, decided by its suffix alone, so that a file called `gsm8k` changes nothing."""
    return Path(task).suffix in FILE_SUFFIXES


def resolve_suites(base: str | Path) -> dict[str, str]:
    """Return the task spec of each suite, with file paths relative to the folder of `recover.json` made absolute."""
    folder, suites = Path(base).absolute(), checkpoint_metadata(base).get("suites") or {}
    if not isinstance(suites, dict) or not all(isinstance(task_spec, str) for task_spec in suites.values()):
        raise RecoverError(
            f'The field "suites" of {folder / "recover.json"} does not map names to lists of tasks. '
            'Write it like {"behaviour": "ifeval,house.jsonl"}.'
        )
    return {
        suite: ",".join(str(folder / task) if is_task_file(task) else task for task in task_names(task_spec))
        for suite, task_spec in suites.items()
    }


def load_suites(base: str | Path) -> dict[str, str]:
    """Resolve the suites and check that each exists, and that every file does and may be used. Raise RecoverError
    otherwise."""
    suites, folder = resolve_suites(base), Path(base).absolute()
    files, known = suite_files(suites), (*SUITES, *BENCHMARKS)
    if (unknown := next((suite for suite in suites if suite not in known), None)) is not None:
        raise RecoverError(
            f"The file {folder / 'recover.json'} names the suite {unknown!r}, which does not exist. Use one of "
            f"{', '.join(known)}."
        )
    for suite, task_spec in suites.items():
        names = Counter(name for task in task_names(task_spec) for name in _names_of_results(suite, task))
        if repeated := [name for name, count in names.items() if count > 1]:
            raise RecoverError(
                f"The suite {suite} of {folder / 'recover.json'} has two tasks of the name {repeated[0]}, so their "
                "scores would be mixed up. Rename the file, or drop one; lab stands for ifeval and refusals, or in "
                "retention for arithmetic and own_world."
            )
    if files and "," in str(folder):
        raise RecoverError(
            f"The folder {folder} has a comma in its path, which separates the tasks of a suite. Rename the folder."
        )
    for file in files:
        if not file.is_file():
            raise RecoverError(
                f"The file {file}, listed under suites in {folder / 'recover.json'}, does not exist. Create it or "
                "correct its name (a path is relative to the folder of that recover.json)."
            )
        if _is_yaml(file) and os.environ.get(TRUST) != "1":
            raise RecoverError(
                f"The file {folder / 'recover.json'} lists {file.name}, a custom lm-eval task, which may run any "
                f"Python code. Set {TRUST}=1 if you trust its author, or remove it from suites."
            )
    return suites


def suite_files(suites: Mapping[str, str]) -> list[Path]:
    return [Path(task) for task_spec in suites.values() for task in task_names(task_spec) if is_task_file(task)]


def content_id(task_spec: str) -> str:
    """Return the task spec with each file's folder replaced by a content hash; part of measurement keys."""
    return ",".join(
        f"{Path(task).name}:{file_hash(Path(task))}" if is_task_file(task) else task for task in task_names(task_spec)
    )


def _names_of_results(suite: str, task: str) -> Sequence[str]:
    return (
        LAB_TASKS.get(suite, ("closed_book",)) if task == "lab" else (Path(task).stem if is_task_file(task) else task,)
    )


def file_hash(file: Path) -> str:
    """The hash of a task's file, and of the files that it refers to."""
    return "/".join(data_hash(part) for part in (_with_dependencies(file, {}) if _is_yaml(file) else [file]))


def _is_yaml(file: Path) -> bool:
    return file.suffix in YAML_SUFFIXES


def _with_dependencies(file: Path, visited: dict[Path, None]) -> list[Path]:
    """Return an lm-eval task's YAML file and the files it refers to: includes, data and functions."""
    visited[file.resolve()] = None
    for other in _referenced_files(file):
        if other.resolve() not in visited and _is_yaml(other):
            _with_dependencies(other, visited)
        visited[other.resolve()] = None
    return list(visited)


def _is_data_folder(key: str, name: str) -> bool:
    """Whether the value of a key is a folder here. A plain `data_dir` is more likely one of a data set on the hub."""
    is_local = (key == "dataset_path" and name not in BUILDERS) or (key == "data_dir" and "/" in name)
    return is_local and os.path.isdir(name) and Path(name).resolve() != Path.cwd()


def _referenced_files(file: Path) -> Iterator[Path]:
    try:
        events = list(yaml.parse(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader))  # runs no code
    except (OSError, ValueError, yaml.YAMLError):
        return  # loading the task reports the error
    key = ""
    for event in events:
        if isinstance(event, yaml.ScalarEvent):
            module = event.value.rpartition(".")[0].replace(".", "/") + ".py"
            name = module if event.tag == "!function" else event.value
            # Includes are relative to the file's own folder; for lm-eval, data is relative to the current one.
            yield from (path for path in (file.parent / name, Path(name)) if os.path.isfile(path))
            if _is_data_folder(key, name):
                yield Path(name)
            if "*" in name and Path(name).suffix and name.isprintable() and " " not in name:  # no text of a prompt
                yield from (Path(path) for path in sorted(glob(name, recursive=True)) if os.path.isfile(path))
            key = event.value
