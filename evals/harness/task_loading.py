"""lm-eval's tasks by name, file or configuration, loaded without ever waiting for a network that is not there.

Import this module inside functions: lm-eval takes seconds to import, and its index of tasks seconds more.
"""

import contextlib
import difflib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lm_eval.tasks import TaskManager

from evals.downloads import hub_is_off, reachable_hub, within
from evals.suites.config import is_file
from recovery.errors import RecoverError

LOADING_SECONDS = 1800.0  # a group of many tasks on a slow line, the first time


def loaded_tasks(task: str | dict[str, Any]) -> tuple[TaskManager, list[Any]]:
    """The task, or all of its group, with their data."""
    manager = _manager_for(task)
    with _from_cache_alone() if not hub_is_off() and not reachable_hub() else contextlib.nullcontext():
        found = within(LOADING_SECONDS, lambda: _tried(manager, task))
    if found is None:
        raise RecoverError(
            f"the data of the lm-eval task {_named(task)} did not come within {LOADING_SECONDS:.0f} s; try again"
        )
    if isinstance(found, Exception):
        raise RecoverError(
            f"the data of the lm-eval task {_named(task)} is not to be had ({_first_line(found)}); "
            "connect to the hub once, or give a task whose YAML names local files"
        ) from found
    return manager, found


def _tried(manager: TaskManager, task: str | dict[str, Any]) -> list[Any] | Exception:
    try:
        tasks = list(manager.load([task])["tasks"].values())
        for each in tasks:
            len(each.eval_docs)
    except Exception as error:  # whatever stands in a user's file, or in the way to the hub
        return error
    return tasks


@contextlib.contextmanager
def _from_cache_alone() -> Iterator[None]:
    """The hub's client asks again and again before it looks at what it has; told that it is offline, it looks first."""
    import datasets  # type: ignore[import-untyped]
    from huggingface_hub import constants

    places: tuple[Any, ...] = (constants, datasets.config)
    before = [place.HF_HUB_OFFLINE for place in places]
    try:
        for place in places:
            place.HF_HUB_OFFLINE = True
        yield
    finally:
        for place, was in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = was


@functools.cache
def _all_tasks() -> TaskManager:
    return TaskManager()


def _manager_for(task: str | dict[str, Any]) -> TaskManager:
    if isinstance(task, dict) or (is_file(task) and Path(task).is_file()):
        return TaskManager(include_defaults=False)
    known = _all_tasks().all_tasks
    if task not in known:
        close = difflib.get_close_matches(task, known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "`lm-eval ls tasks` lists those there are"
        raise RecoverError(f"there is no lm-eval task {task!r}; {hint}")
    return _all_tasks()


def _named(task: str | dict[str, Any]) -> str:
    return repr(task if isinstance(task, str) else task.get("task", "given"))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
