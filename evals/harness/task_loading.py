"""Load lm-eval tasks by name, file or configuration, without waiting for a network that does not answer.

Import this module inside functions: lm-eval takes seconds to import, and its index of tasks seconds more.
"""

import contextlib
import difflib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lm_eval.tasks import TaskManager

from evals.downloads import is_hub_offline, is_hub_reachable, run_with_timeout
from evals.suites.config import is_task_file
from recovery.errors import RecoverError, hub_problem

LOADING_SECONDS = 1800.0  # enough to download a group of many tasks over a slow connection


def load_tasks(task: str | dict[str, Any]) -> tuple[TaskManager, list[Any]]:
    """Return the task, or all tasks of a group, with their data loaded. Raise RecoverError if that fails."""
    manager = _manager_for(task)
    with contextlib.nullcontext() if is_hub_offline() or is_hub_reachable() else _cache_only():
        tasks = run_with_timeout(LOADING_SECONDS, lambda: _try_load(manager, task))
    if tasks is None:
        raise RecoverError(
            f"The data of the lm-eval task {_task_name(task)} did not load within {LOADING_SECONDS:.0f} s. Try again."
        )
    if isinstance(tasks, Exception):
        advice = "Connect to the hub once, or give a task whose YAML refers to local files."
        problem = hub_problem(tasks, advice, by_reference=False)
        raise RecoverError(f"The data of the lm-eval task {_task_name(task)} cannot be loaded {problem}") from tasks
    return manager, tasks


def _try_load(manager: TaskManager, task: str | dict[str, Any]) -> list[Any] | Exception:
    try:
        tasks = list(manager.load([task])["tasks"].values())
        for loaded in tasks:
            len(loaded.eval_docs)
    except Exception as error:  # of any kind: the task file is the user's, the data may come from the hub
        return error
    return tasks


@contextlib.contextmanager
def _cache_only() -> Iterator[None]:
    """Set the hub's client offline, so that it reads its cache at once instead of retrying first."""
    import datasets  # type: ignore[import-untyped]
    from huggingface_hub import constants

    modules: tuple[Any, ...] = (constants, datasets.config)
    previous = [module.HF_HUB_OFFLINE for module in modules]
    try:
        for module in modules:
            module.HF_HUB_OFFLINE = True
        yield
    finally:
        for module, value in zip(modules, previous, strict=True):
            module.HF_HUB_OFFLINE = value


@functools.cache
def _all_tasks() -> TaskManager:
    return TaskManager()


def _manager_for(task: str | dict[str, Any]) -> TaskManager:
    if isinstance(task, dict) or (is_task_file(task) and Path(task).is_file()):
        return TaskManager(include_defaults=False)
    names = _all_tasks().all_tasks
    if task not in names:
        similar = difflib.get_close_matches(task, names, n=3)
        hint = f"Did you mean {' or '.join(similar)}?" if similar else "List them with `lm-eval ls tasks`."
        raise RecoverError(f"There is no lm-eval task {task!r}. {hint}")
    return _all_tasks()


def _task_name(task: str | dict[str, Any]) -> str:
    return repr(task if isinstance(task, str) else task.get("task", "(unnamed)"))
