"""Public benchmarks by name: lm-eval's own tasks, with data from the hub or from local files.

The folder RECOVER_BENCHMARK_DATA has a folder for each benchmark, with a JSONL file for each split. A benchmark without
a folder there takes its data from the hub.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from evals.jsonl import read_rows
from evals.measurement_keys import data_hash
from recovery.errors import RecoverError

DATA = "RECOVER_BENCHMARK_DATA"  # environment variable: the folder of local data

Rows = dict[str, list[dict[str, Any]]]  # by split


class Benchmark(NamedTuple):
    tasks: str  # of lm-eval, separated by commas
    folder: str
    splits: str  # the questions, and what examples are taken from
    fields: str  # that every row must have; one of those with a | between them


BENCHMARKS = {
    "gsm8k": Benchmark("gsm8k", "gsm8k", "test train", "question answer"),
    "truthfulqa": Benchmark("truthfulqa_mc1,truthfulqa_mc2", "truthfulqa_mc", "validation", "mc1_targets mc2_targets"),
    "mmlu": Benchmark("mmlu", "mmlu", "test dev", "question subject choices answer"),
    "hellaswag": Benchmark("hellaswag", "hellaswag", "validation", "activity_label|query label"),
    "arc_easy": Benchmark("arc_easy", "arc_easy", "test", "question choices answerKey"),
    "arc_challenge": Benchmark("arc_challenge", "arc_challenge", "test", "question choices answerKey"),
    "piqa": Benchmark("piqa", "piqa", "validation", "goal sol1 sol2 label"),
    "winogrande": Benchmark("winogrande", "winogrande", "validation", "sentence option1 option2 answer"),
    "boolq": Benchmark("boolq", "boolq", "validation", "passage question label"),
    "lambada": Benchmark("lambada_openai", "lambada_openai", "test", "text"),
}


def local_folder(task: str) -> Path | None:
    """The folder with the data of a benchmark's task, if there is one."""
    benchmark, root = _benchmark_of(task), os.environ.get(DATA)
    if benchmark is None or not root:
        return None
    if not Path(root).is_dir():
        raise RecoverError(f"There is no folder {root}. Correct {DATA}, or unset it to take data from the hub.")
    folder = Path(root) / benchmark.folder
    return folder if folder.is_dir() else None


def local_data_hash(tasks: list[str]) -> str:
    """A hash of the local data of these tasks; empty if all data comes from the hub."""
    return "/".join(f"{task}:{data_hash(folder)}" for task in tasks if (folder := local_folder(task)))


def task_config(task: str) -> dict[str, Any] | None:
    """A benchmark's task as lm-eval loads it: a group of tasks with other settings. None if none are to change."""
    benchmark, folder = _benchmark_of(task), local_folder(task)
    if benchmark is None or folder is None:
        return None
    return {"group": f"{task}_benchmark", "task": _local_tasks(task, _read(folder, benchmark))}


def _benchmark_of(task: str) -> Benchmark | None:
    return next((benchmark for benchmark in BENCHMARKS.values() if task in benchmark.tasks.split(",")), None)


def _read(folder: Path, benchmark: Benchmark) -> Rows:
    data = {split: read_rows(folder / f"{split}.jsonl") for split in benchmark.splits.split()}
    for name in benchmark.fields.split():
        either = name.split("|")
        if without := [place for rows in data.values() for place, row in rows if not any(n in row for n in either)]:
            raise RecoverError(f'{without[0]} has no "{either[0]}". Every line needs it, as in the public data set.')
    return {split: [row for _, row in rows] for split, rows in data.items()}


def _local_tasks(task: str, data: Rows) -> list[dict[str, Any]]:
    """The task with local data; in place of the group mmlu, its task of each subject with questions."""
    if task != "mmlu":
        return [_local_task(task, data)]
    subjects = dict.fromkeys(row["subject"] for row in data["test"])
    parts = [{split: [r for r in rows if r["subject"] == name] for split, rows in data.items()} for name in subjects]
    return [_local_task(f"mmlu_{name}", part) for name, part in zip(subjects, parts, strict=True)]


def _local_task(task: str, data: Rows) -> dict[str, Any]:
    splits = (("training_split", "train"), ("validation_split", "validation"), ("test_split", "test"))
    config: dict[str, Any] = {setting: None for setting, split in splits if split not in data}
    if any("query" in rows[0] for rows in data.values() if rows):  # what lm-eval makes of the public rows
        config["process_docs"] = None
    return config | {"task": task, "custom_dataset": partial(_datasets, data)}


def _datasets(data: Rows, **settings: Any) -> dict[str, Any]:
    import datasets  # type: ignore[import-untyped]

    return {split: datasets.Dataset.from_list(rows) for split, rows in data.items()}
