"""Run any lm-eval task on a model in memory and return its results, with the task's own prompts, stops and metrics.

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

from evals.cost_meter import with_cost_meter
from evals.harness.model import HarnessModel
from evals.harness.task_loading import load_tasks
from evals.results import Item, Metric, Result, Tokens
from evals.splits import Split, select_items
from evals.subject import Subject

KEY_LENGTH = 12  # characters of a document's hash


def run_task(
    subject: Subject, task: str | dict[str, Any], *, suite: str, limit: int | None = None, split: Split = "all"
) -> list[Result]:
    """Run a task given by its name, the path of its YAML file, or its configuration.

    A group (`mmlu`) gives one result per task."""
    subject, cost = with_cost_meter(subject)
    with _isolated():
        manager, tasks = load_tasks(task)
        rows = {t.config.task: _select_rows(t, split, limit) for t in tasks} if split != "all" else None
        report = simple_evaluate(
            HarnessModel(subject, greedy=not all(_ignores_greedy(t) for t in tasks)),
            tasks=tasks,
            limit=None if rows else limit,
            samples=rows,
            task_manager=manager,
            apply_chat_template=True,
            bootstrap_iters=0,
        )
    seconds, tokens = cost()
    count = len(report["samples"])  # the cost of a group is divided equally between its tasks
    task_cost = seconds / count, Tokens(tokens.read // count, tokens.written // count)
    settings = {"limit": limit, "part": split, "thinking": subject.thinking, "lm_eval": version("lm_eval")}
    return [
        Result(
            name, suite, "lm-eval", _metrics(report["results"][name], samples), _items(samples), settings, *task_cost
        )
        for name, samples in report["samples"].items()
    ]


def _ignores_greedy(task: Any) -> bool:
    metrics = {metric["metric"] for metric in task.config.metric_list or [{"metric": "acc"}]}
    return task.OUTPUT_TYPE == "multiple_choice" and "exact_match" not in metrics


def _select_rows(task: Any, split: Split, limit: int | None) -> list[int]:
    """Return the indices of the task's documents in the split, by the keys that their items will have."""
    return [i for i, _ in select_items(enumerate(task.eval_docs), lambda row: _document_key(row[1]), split, limit)]


def _document_key(document: Any) -> str:
    """Hash a document the way lm-eval does."""
    text = json.dumps(document, indent=2, default=handle_non_serializable, ensure_ascii=False)
    return str(hash_string(text))[:KEY_LENGTH]


def _metrics(reported: dict[str, Any], samples: list[dict[str, Any]]) -> dict[str, Metric]:
    """lm-eval's metrics under its own names (`exact_match,strict-match` if there are several filters)."""
    several = len({sample["filter"] for sample in samples}) > 1
    metrics = {}
    for name, value in reported.items():
        metric, _, filter_name = name.partition(",")
        values = [sample[metric] for sample in samples if sample["filter"] == filter_name and metric in sample]
        if values and isinstance(value, int | float):
            metrics[name if several else metric] = _metric(float(value), values)
    return metrics


def _metric(value: float, values: list[Any]) -> Metric:
    """Add an interval if the number is a mean over the samples; otherwise the interval is NaN."""
    guess = None
    if all(isinstance(v, list) and set(v) <= {0, 1} for v in values):
        guess = Metric.from_groups(values)
    elif all(isinstance(v, int | float) for v in values):
        guess = Metric.from_passes(values) if set(values) <= {0, 1} else Metric.from_values(values)
    if guess and math.isclose(guess.value, value, abs_tol=1e-9):
        return guess
    return Metric(value, len(values), math.nan, (math.nan, math.nan))


def _items(samples: list[dict[str, Any]]) -> list[Item]:
    """One item per document, with the scores of all filters in its verdicts."""
    by_document: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for sample in samples:
        by_document[sample["doc_id"]].append(sample)
    return [_item(group) for group in by_document.values()]


def _item(samples: list[dict[str, Any]]) -> Item:
    first = samples[0]
    verdicts = {
        metric if len(samples) == 1 else f"{metric},{sample['filter']}": _to_plain(sample[metric])
        for sample in samples
        for metric in sample["metrics"]
    }
    passed = next(iter(verdicts.values()))
    return Item(first["doc_hash"][:KEY_LENGTH], first["arguments"][0][0], _reply(first), passed in (1, True), verdicts)


def _to_plain(value: Any) -> Any:
    """Convert to a JSON value: NumPy numbers to numbers, other objects to text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, int | float | str | list) else str(value)


def _reply(sample: dict[str, Any]) -> str:
    """The generated reply; for multiple choice, the likeliest choice."""
    replies = [reply[0] for reply in sample["resps"]]
    if isinstance(replies[0], str):
        return replies[0]
    best = max(range(len(replies)), key=lambda i: replies[i][0] if isinstance(replies[i], tuple) else replies[i])
    return str(sample["arguments"][best][-1])


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """Redirect lm-eval's standard output to stderr, and restore all random states, which lm-eval reseeds."""
    logging.getLogger("lm_eval").setLevel(logging.WARNING)
    state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with contextlib.redirect_stdout(sys.stderr), torch.random.fork_rng():
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
