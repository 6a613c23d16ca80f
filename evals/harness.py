"""Run any lm-eval task on a model in memory and return its results, with the task's own prompts, stops and metrics.

Import this module inside functions: lm-eval takes seconds to import, and its index of tasks seconds more.
"""

import contextlib
import difflib
import functools
import json
import logging
import math
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import TemplateError
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import (
    handle_stop_sequences,
    normalize_gen_kwargs,
    postprocess_generated_text,
    resolve_max_length,
)
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, handle_non_serializable, hash_string, make_disjoint_window

from evals.benchmarks import DATA, local_folder, task_config
from evals.downloads import is_hub_offline, is_hub_reachable, run_with_timeout
from evals.results import LOWER_IS_BETTER, Item, Metric, Result, Tokens
from evals.splits import Split, select_items
from evals.subject import Subject, with_cost_meter
from recovery.engines import Sampling
from recovery.errors import RecoverError, hub_problem
from recovery.models.families import unscaled_positions

KEY_LENGTH = 12  # characters of a document's hash
MAX_NEW_TOKENS = 256  # lm-eval's default for tasks without a limit
UNLIMITED = 10**6  # for configs without a maximum length
LOADING_SECONDS = 1800.0  # enough to download a group of many tasks over a slow connection


def run_task(
    subject: Subject, task: str, *, suite: str, limit: int | None = None, split: Split = "all"
) -> list[Result]:
    """Run a task given by its name or the path of its YAML file.

    A group (`mmlu`) gives one result per task."""
    subject, cost = with_cost_meter(subject)
    with _isolated():
        random.seed(0)  # some tasks shuffle the choices of their documents as they are loaded
        np.random.seed(0)
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
    settings = {"limit": limit, "part": split, "lm_eval": version("lm_eval")}
    data = "local" if local_folder(task) else "lm-eval"
    results = []
    for name, samples in report["samples"].items():
        directions = report["higher_is_better"][name].items()  # None: lm-eval does not know the metric
        lower = {
            metric for metric, higher in directions if higher is False or (higher is None and "perplexity" in metric)
        }
        metrics = _scores_first(_metrics(report["results"][name], samples), lower)
        if not metrics:
            raise RecoverError(f"The lm-eval task {name} has no metric that is a number. Name another task.")
        direction = {LOWER_IS_BETTER: True} if next(map(_plain_name, metrics)) in lower else {}
        results.append(Result(name, suite, data, metrics, _items(samples, lower), settings | direction, *task_cost))
    return results


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


def _scores_first(by_metric: dict[str, Any], lower: set[str]) -> dict[str, Any]:
    """By metric, those of which less is better at the end: the first metric is the headline."""
    return dict(sorted(by_metric.items(), key=lambda named: _plain_name(named[0]) in lower))


def _plain_name(metric: str) -> str:
    """The name of a metric without that of its filter."""
    return metric.partition(",")[0]


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


def _items(samples: list[dict[str, Any]], lower: set[str]) -> list[Item]:
    """One item per document, with the scores of all filters in its verdicts."""
    by_document: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for sample in samples:
        by_document[sample["doc_id"]].append(sample)
    return [_item(group, lower) for group in by_document.values()]


def _item(samples: list[dict[str, Any]], lower: set[str]) -> Item:
    first = samples[0]
    verdicts = {
        metric if len(samples) == 1 else f"{metric},{sample['filter']}": _to_plain(sample[metric])
        for sample in samples
        for metric in sample["metrics"]
    }
    verdicts = _scores_first(verdicts, lower)
    metric, value = next(iter(verdicts.items()))
    passed = value in (1, True) and _plain_name(metric) not in lower
    return Item(first["doc_hash"][:KEY_LENGTH], first["arguments"][0][0], _reply(first), passed, verdicts)


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
    logging.getLogger("lm_eval.api.task").setLevel(logging.ERROR)  # it warns of every default and of all local data
    state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with contextlib.redirect_stdout(sys.stderr), torch.random.fork_rng():
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


class HarnessModel(TemplateLM):
    """A `Subject` as lm-eval's `hf` model, equal token for token: same prompts, greedy replies and likelihoods."""

    def __init__(self, subject: Subject, *, greedy: bool = True):
        """Without `greedy` it is not computed whether a continuation is the greedy one: multiple choice ignores it."""
        super().__init__()
        self.subject, self.greedy = subject, greedy
        self.tokenizer = subject.chat.tokenizer

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        return self.subject.chat.scoring_prefix

    @property
    def tokenizer_name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        try:
            return self.subject.prompt_text(chat_history, add_generation_prompt=add_generation_prompt)
        except TemplateError:  # of a template without a system turn, as Gemma 2's: lm-eval leaves it out, too
            turns = [message for message in chat_history if message["role"] != "system"]
            return self.subject.prompt_text(turns, add_generation_prompt=add_generation_prompt)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """Tokenize; a rendered chat already contains its special tokens, so none are added by default."""
        return list(self.tokenizer.encode(string, add_special_tokens=bool(add_special_tokens)))

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        replies = [""] * len(requests)
        groups: dict[tuple[int, float], list[int]] = defaultdict(list)  # requests by their generation settings
        options = [normalize_gen_kwargs(request.args[1], MAX_NEW_TOKENS) for request in requests]
        for i, option in enumerate(options):
            temperature = option.get("temperature", 1.0) if option.get("do_sample") else 0.0
            groups[option["max_gen_toks"], temperature].append(i)
        for (max_new_tokens, temperature), indices in groups.items():
            # As lm-eval, the beginning of a longer prompt is left out; where the reply alone takes all, nothing (0) is.
            room = max(self._window() - max_new_tokens, 0)
            prompts = [self.tok_encode(requests[i].args[0])[-room:] for i in indices]
            answers = self.subject.complete(prompts, max_new_tokens, temperature=temperature, of_turns=True)
            for i, answer in zip(indices, answers, strict=True):
                stops = handle_stop_sequences(options[i]["until"], eos=self.tokenizer.eos_token)
                replies[i] = postprocess_generated_text(answer.text, stops, None)
        return replies

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Score texts in windows that do not overlap; every token is predicted once."""
        length = self._window()
        texts = [self.tok_encode(request.args[0], add_special_tokens=False) for request in requests]
        windows = [get_rolling_token_windows(text, self.prefix_token_id, length, 1) for text in texts]
        return [self._score(map(make_disjoint_window, pairs)) for pairs in windows]

    def _score(self, windows: Iterable[tuple[list[int], list[int]]]) -> float:
        """The log-prob of all that the windows predict."""
        windows = list(windows)
        rows = self.subject.engine.logprobs([context + text for context, text in windows])
        return math.fsum(math.fsum(row[-len(text) :]) for row, (_, text) in zip(rows, windows, strict=True))

    def _window(self) -> int:
        """The smallest maximum length: of the model's config (as in lm-eval), the tokenizer, and the engine, which
        reads one token more than a window has.

        The tokenizer's may be unset (an astronomical number) or exceed the positions that the model learned."""
        engine: Any = self.subject.engine
        engine = getattr(engine, "engine", engine)  # it may be metered
        student = getattr(engine, "student", None)  # vLLM's engines have none, but a limit of their own
        max_positions = resolve_max_length(student and student.causal.config, default=UNLIMITED)
        if student:
            max_positions = min(max_positions, unscaled_positions(student.causal.config.get_text_config()) or UNLIMITED)
        longest = getattr(engine, "longest", UNLIMITED)
        return min(int(self.tokenizer.model_max_length), max_positions, longest - 1)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        longest = self._window() + 1  # the last token is not read; as lm-eval, what is before them is left out
        rooms = [max(1, longest - len(after)) for _, _, after in requests]
        pairs = [(before[-room:], after) for room, (_, before, after) in zip(rooms, requests, strict=True)]
        are_greedy = self._greedy(pairs) if self.greedy else [False] * len(pairs)
        contexts, continuations = [before for before, _ in pairs], [after for _, after in pairs]
        # Equal contexts are read once.
        scores = [sum(row) for row in self.subject.engine.continuation_logprobs(contexts, continuations)]
        if any(map(math.isnan, scores)):  # the first choice would count as the likeliest
            raise RecoverError("The model's likelihoods are no numbers, so its weights are broken. Train it again.")
        return list(zip(scores, are_greedy, strict=True))

    def _greedy(self, pairs: list[tuple[list[int], list[int]]]) -> list[bool]:
        """Whether greedy decoding gives the continuation. One reply per context is enough for all its continuations."""
        longest: dict[tuple[int, ...], int] = defaultdict(int)
        for context, continuation in pairs:
            longest[tuple(context)] = max(longest[tuple(context)], len(continuation))
        replies: dict[tuple[int, ...], list[int]] = {}
        for length in sorted(set(longest.values()) - {0}):
            contexts = [context for context, needed in longest.items() if needed == length]
            generations = self.subject.engine.generate([list(c) for c in contexts], Sampling(length, temperature=0.0))
            replies |= {context: g.tokens for context, g in zip(contexts, generations, strict=True)}
        return [replies.get(tuple(context), [])[: len(after)] == after for context, after in pairs]


def load_tasks(task: str) -> tuple[TaskManager, list[Any]]:
    """Return the task, or all tasks of a group, with their data loaded, without waiting for a network that is silent.

    Raise RecoverError if that fails."""
    manager = _manager_for(task)
    config = task_config(task) or task
    with contextlib.nullcontext() if is_hub_offline() or is_hub_reachable() else _cache_only():
        tasks = run_with_timeout(LOADING_SECONDS, lambda: _try_load(manager, config))
    if tasks is None:
        raise RecoverError(
            f"The data of the lm-eval task {task!r} did not load within {LOADING_SECONDS:.0f} s. Try again."
        )
    if isinstance(tasks, Exception):
        advice = f"Connect to the hub once, or give local files, in {DATA} or in the task's YAML."
        problem = hub_problem(tasks, advice, by_reference=False)
        raise RecoverError(f"The data of the lm-eval task {task!r} cannot be loaded {problem}") from tasks
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


def _manager_for(task: str) -> TaskManager:
    if Path(task).suffix in (".yaml", ".yml") and Path(task).is_file():
        return TaskManager(include_defaults=False)
    names = _all_tasks().all_tasks
    if task not in names:
        similar = difflib.get_close_matches(task, names, n=3)
        hint = f"Did you mean {' or '.join(similar)}?" if similar else "List them with `lm-eval ls tasks`."
        raise RecoverError(f"There is no lm-eval task {task!r}. {hint}")
    return _all_tasks()
