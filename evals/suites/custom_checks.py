"""A user's own suite: JSON lines of prompts, each with checks that its reply must pass.

    {"prompt": "List three fruits.", "checks": [{"max_words": 20}, {"matches": "(?i)apple|pear"}]}
    {"messages": [{"role": "system", "content": "Reply as JSON."}, {"role": "user", "content": "Hi"}],
     "checks": [{"json": true}]}
    {"prompt": "Say it in lower case.", "checks": [{"instruction": "change_case:english_lowercase", "kwargs": {}}]}

A task may have a `key`; without one it is known by what it asks.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex  # type: ignore[import-untyped]

from evals.cost_meter import metered
from evals.jsonl import Row, read_rows, text_field
from evals.results import Item, Metric, Result, key_of
from evals.subject import Answer, Subject
from evals.suites.answer_grading import matches
from evals.suites.instruction_following import Prompt, judge, prompt_of
from recovery.errors import RecoverError
from recovery.models.chat import Message

MAX_NEW_TOKENS = 512
PATTERN_SECONDS = 1.0  # a pattern may need for ever on a reply that it does not fit

Check = Callable[[Answer], bool]


@dataclass(frozen=True)
class Task:
    key: str
    messages: list[Message]
    checks: list[tuple[str, Check]]  # what is checked, and how

    @property
    def asked(self) -> str:
        return "\n".join(message["content"] for message in self.messages)


def read_tasks(path: str | Path) -> list[Task]:
    tasks = [task_of(row) for row in read_rows(path)]
    if len({task.key for task in tasks}) < len(tasks):
        raise RecoverError(f'{path}: two lines have the same key or ask the same; give every task a "key" of its own')
    return tasks


def measure_checks(
    subject: Subject, tasks: Sequence[Task], *, suite: str, path: str | Path, max_new_tokens: int = MAX_NEW_TOKENS
) -> Result:
    """A reply passes that passes all of its checks. The task is called what its file is."""
    subject, spent = metered(subject)
    answers = subject.answer([task.messages for task in tasks], max_new_tokens)
    items = []
    by_kind: dict[str, list[list[bool]]] = defaultdict(list)  # of each task that checks it, all its verdicts
    for task, answer in zip(tasks, answers, strict=True):
        verdicts = [(kind, check(answer)) for kind, check in task.checks]
        for kind in dict.fromkeys(kind for kind, _ in verdicts):
            by_kind[kind].append([passed for each, passed in verdicts if each == kind])
        details = {"checks": [[kind, passed] for kind, passed in verdicts], "finished": answer.finished}
        items.append(Item(task.key, task.asked, answer.text, all(passed for _, passed in verdicts), details))
    metrics = {
        "passed": Metric.of_passes([item.passed for item in items]),
        "finished": Metric.of_passes([answer.finished for answer in answers]),
    }
    metrics |= {f"check/{kind}": Metric.of_groups(groups) for kind, groups in sorted(by_kind.items())}
    settings = {"max_new_tokens": max_new_tokens, "thinking": subject.thinking}
    path = Path(path)
    return Result(path.stem, suite, path.name, metrics, items, settings, *spent())


def task_of(row: Row) -> Task:
    where, values = row
    messages = _messages(row)
    checks = values.get("checks")
    if not isinstance(checks, list) or not checks or not all(isinstance(check, dict) for check in checks):
        raise RecoverError(f'{where}: "checks" must be a list of objects, one at least, such as {{"contains": "yes"}}')
    asked = "\n".join(message["content"] for message in messages)
    return Task(str(values.get("key", key_of(asked))), messages, [_check(where, check, asked) for check in checks])


def _messages(row: Row) -> list[Message]:
    where, values = row
    if "messages" not in values:
        return [{"role": "user", "content": text_field(row, "prompt")}]
    messages = values["messages"]
    told = isinstance(messages, list) and all(
        isinstance(m, dict) and all(isinstance(m.get(name), str) for name in ("role", "content")) for m in messages
    )
    if not told or not messages or messages[-1]["role"] != "user":
        raise RecoverError(f'{where}: "messages" must be a list of {{"role": …, "content": …}} that ends on the user')
    return [{"role": m["role"], "content": m["content"]} for m in messages]


def _check(where: str, said: dict[str, Any], asked: str) -> tuple[str, Check]:
    if "instruction" in said:
        line = {"prompt": asked, "instruction_id_list": [said["instruction"]], "kwargs": [said.get("kwargs") or {}]}
        prompt: Prompt = prompt_of((where, line))
        return prompt.instructions[0], lambda answer: judge(prompt, answer).passed
    if len(said) != 1 or next(iter(said)) not in KINDS:
        raise RecoverError(f"{where}: {said!r} is no check; one is {', '.join(sorted(KINDS))} or instruction")
    [(kind, wanted)] = said.items()
    takes, passes = KINDS[kind]
    if not isinstance(wanted, takes) or (isinstance(wanted, bool) and takes is not bool) or wanted == "":
        raise RecoverError(f'{where}: the check "{kind}" takes a {NAMES[takes]}, not {wanted!r}')
    if kind == "matches":
        try:
            regex.compile(wanted)
        except regex.error as error:
            raise RecoverError(f"{where}: {wanted!r} is not a regular expression ({error})") from error
    return kind, lambda answer: passes(answer, wanted)


def _found(pattern: str, text: str) -> bool:
    try:
        return regex.search(pattern, text, timeout=PATTERN_SECONDS) is not None
    except TimeoutError:
        return False


def _is_json(text: str) -> bool:
    inside = regex.fullmatch(r"\s*```(?:json)?\n(.*)\n```\s*", text, regex.DOTALL)
    try:
        json.loads(inside[1] if inside else text)
    except (ValueError, RecursionError):
        return False
    return True


NAMES = {str: "text", int: "whole number", bool: "true or false"}
KINDS: dict[str, tuple[type, Callable[[Answer, Any], bool]]] = {
    "contains": (str, lambda answer, wanted: wanted.casefold() in answer.text.casefold()),
    "lacks": (str, lambda answer, wanted: wanted.casefold() not in answer.text.casefold()),
    "says": (str, lambda answer, wanted: matches(answer.text, wanted)),
    "equals": (str, lambda answer, wanted: answer.text.strip() == wanted.strip()),
    "starts_with": (str, lambda answer, wanted: answer.text.lstrip().startswith(wanted)),
    "ends_with": (str, lambda answer, wanted: answer.text.rstrip().endswith(wanted)),
    "matches": (str, lambda answer, wanted: _found(wanted, answer.text)),
    "min_words": (int, lambda answer, wanted: len(answer.text.split()) >= wanted),
    "max_words": (int, lambda answer, wanted: len(answer.text.split()) <= wanted),
    "json": (bool, lambda answer, wanted: _is_json(answer.text) is wanted),
    "finished": (bool, lambda answer, wanted: answer.finished is wanted),
}
