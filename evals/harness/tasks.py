"""Any lm-eval task as a Result: its own prompts, stops and metrics, on a model in memory.

Import this module inside functions: lm-eval takes seconds to import, and its index of tasks seconds more.
"""

import contextlib
import json
import logging
import math
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from lm_eval import simple_evaluate
from lm_eval.utils import handle_non_serializable, hash_string

from evals.cost_meter import metered
from evals.harness.model import HarnessModel
from evals.harness.task_loading import loaded_tasks
from evals.results import Item, Metric, Result, Tokens
from evals.splits import Part, chosen
from evals.subject import Subject

KEY = 12  # letters of a document's hash


def run_task(
    subject: Subject, task: str | dict[str, Any], *, suite: str, limit: int | None = None, part: Part = "all"
) -> list[Result]:
    """An lm-eval task with its own prompts, stops and metrics: by name, by the path of its YAML file, or as a
    configuration. A group (`mmlu`) gives a result for each of its tasks."""
    subject, spent = metered(subject)
    with _undisturbed():
        manager, tasks = loaded_tasks(task)
        rows = {each.config.task: _rows_of(each, part, limit) for each in tasks} if part != "all" else None
        report = simple_evaluate(
            HarnessModel(subject),
            tasks=tasks,
            limit=None if rows else limit,
            samples=rows,
            task_manager=manager,
            apply_chat_template=True,
            bootstrap_iters=0,
        )
    seconds, tokens = spent()
    each = len(report["samples"])  # of a group, all bear the same part of the cost
    cost = seconds / each, Tokens(tokens.read // each, tokens.written // each)
    settings = {"limit": limit, "part": part, "thinking": subject.thinking, "lm_eval": version("lm_eval")}
    return [
        Result(name, suite, "lm-eval", _metrics(report["results"][name], samples), _items(samples), settings, *cost)
        for name, samples in report["samples"].items()
    ]


def _rows_of(task: Any, part: Part, limit: int | None) -> list[int]:
    """Which of the task's documents belong to the part; by the key that their items will have."""
    return [i for i, _ in chosen(enumerate(task.eval_docs), lambda row: _key_of(row[1]), part, limit)]


def _key_of(document: Any) -> str:
    """As lm-eval itself hashes a document."""
    said = json.dumps(document, indent=2, default=handle_non_serializable, ensure_ascii=False)
    return str(hash_string(said))[:KEY]


def _metrics(reported: dict[str, Any], samples: list[dict[str, Any]]) -> dict[str, Metric]:
    """lm-eval's numbers, under its names (`exact_match,strict-match` where there are several filters)."""
    several = len({sample["filter"] for sample in samples}) > 1
    metrics = {}
    for name, value in reported.items():
        metric, _, chosen = name.partition(",")
        values = [sample[metric] for sample in samples if sample["filter"] == chosen and metric in sample]
        if values and isinstance(value, int | float):
            metrics[name if several else metric] = _metric(float(value), values)
    return metrics


def _metric(value: float, values: list[Any]) -> Metric:
    """With our uncertainty where the number is a mean over the samples; with none where it is something else."""
    guess = None
    if all(isinstance(v, list) and set(v) <= {0, 1} for v in values):
        guess = Metric.of_groups(values)
    elif all(isinstance(v, int | float) for v in values):
        guess = Metric.of_passes(values) if set(values) <= {0, 1} else Metric.of_values(values)
    if guess and math.isclose(guess.value, value, abs_tol=1e-9):
        return guess
    return Metric(value, len(values), math.nan, (math.nan, math.nan))


def _items(samples: list[dict[str, Any]]) -> list[Item]:
    """An item a document; what each filter made of its reply is in the verdicts."""
    by_document: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for sample in samples:
        by_document[sample["doc_id"]].append(sample)
    return [_item(alike) for alike in by_document.values()]


def _item(alike: list[dict[str, Any]]) -> Item:
    first = alike[0]
    verdicts = {
        metric if len(alike) == 1 else f"{metric},{sample['filter']}": _plain(sample[metric])
        for sample in alike
        for metric in sample["metrics"]
    }
    passed = next(iter(verdicts.values()))
    return Item(first["doc_hash"][:KEY], first["arguments"][0][0], _reply(first), passed in (1, True), verdicts)


def _plain(value: Any) -> Any:
    """Fit for JSON: a number of NumPy's is a number, what is neither number, text nor a list of them is described."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, int | float | str | list) else str(value)


def _reply(sample: dict[str, Any]) -> str:
    """What was written; of several choices, the likeliest."""
    replies = [reply[0] for reply in sample["resps"]]
    if isinstance(replies[0], str):
        return replies[0]
    best = max(range(len(replies)), key=lambda i: replies[i][0] if isinstance(replies[i], tuple) else replies[i])
    return str(sample["arguments"][best][-1])


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """lm-eval prints to standard output and reseeds everything random; a run around it shall notice neither."""
    logging.getLogger("lm_eval").setLevel(logging.WARNING)
    dice, numpy_dice = random.getstate(), np.random.get_state()
    try:
        with contextlib.redirect_stdout(sys.stderr), torch.random.fork_rng():
            yield
    finally:
        random.setstate(dice)
        np.random.set_state(numpy_dice)
