"""A user's own suite: a JSON Lines file of prompts, each with checks that the reply must pass.

    {"prompt": "List three fruits.", "checks": [{"max_words": 20}, {"matches": "(?i)apple|pear"}]}
    {"messages": [{"role": "system", "content": "Reply as JSON."}, {"role": "user", "content": "Hi"}],
     "checks": [{"json": true}]}
    {"prompt": "Say it in lower case.", "checks": [{"instruction": "change_case:english_lowercase", "kwargs": {}}]}

A task may have a `key`; the default is a hash of its prompt. A row of training data may have the same checks, or a
short answer, by which its replies are judged.
"""

import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import regex  # type: ignore[import-untyped]

from evals.jsonl import Row, read_rows, text_field
from evals.results import Item, Metric, Result, item_key
from evals.splits import Blocks, ask_in_blocks
from evals.subject import Answer, Subject, with_cost_meter
from evals.suites.answer_grading import as_number, count_words, last_number_matches, matches, normalized_words
from evals.suites.instruction_following import Prompt, judge, metrics_by_kind, parse_prompt
from recovery.errors import RecoverError
from recovery.models.chat_template import Message

MAX_NEW_TOKENS = 512
PATTERN_SECONDS = 1.0  # limit on a regular expression, which may backtrack without end

Check = Callable[[Answer], bool]
MAX_ANSWER_WORDS = 8  # a longer answer is an example: a right reply need not contain it
FINAL_ANSWER = "####"
ANSWER_FIELDS = ("answer", "solution")
CHECK_FIELDS = ("checks", *ANSWER_FIELDS)  # of a row: all that decides which replies are right


@dataclass(frozen=True)
class Task:
    key: str
    messages: list[Message]
    checks: list[tuple[str, Check]]  # the kind of each check, and its function

    @property
    def prompt_text(self) -> str:
        return "\n".join(message["content"] for message in self.messages)


def read_tasks(path: str | Path) -> list[Task]:
    tasks = [parse_task(row) for row in read_rows(path)]
    if len({task.key for task in tasks}) < len(tasks):
        raise RecoverError(f'Two lines of {path} have the same key or the same prompt. Give every task its own "key".')
    return tasks


def measure_checks(
    subject: Subject,
    tasks: Sequence[Task],
    *,
    suite: str,
    path: str | Path,
    blocks: Blocks | None = None,
) -> Result:
    """Measure the share of replies that pass all of their checks. The task's name is the file's name."""
    subject, cost = with_cost_meter(subject)

    def ask(tasks: Sequence[Task]) -> list[Item]:
        answers = subject.answer([task.messages for task in tasks], MAX_NEW_TOKENS)
        return [_judge(task, answer) for task, answer in zip(tasks, answers, strict=True)]

    items, block_settings = ask_in_blocks(tasks, lambda task: task.key, ask, blocks)
    settings = block_settings | {"max_new_tokens": MAX_NEW_TOKENS}
    path = Path(path)
    return Result(path.stem, suite, path.name, _metrics(items), items, settings, *cost())


def _judge(task: Task, answer: Answer) -> Item:
    verdicts = [[kind, check(answer)] for kind, check in task.checks]
    details = {"checks": verdicts, "finished": answer.finished}
    return Item(task.key, task.prompt_text, answer.text, all(passed for _, passed in verdicts), details)


def _metrics(items: list[Item]) -> dict[str, Metric]:
    metrics = {
        "passed": Metric.from_passes([item.passed for item in items]),
        "finished": Metric.from_passes([item.verdicts["finished"] for item in items]),
    }
    return metrics | metrics_by_kind("check", (item.verdicts["checks"] for item in items))


def parse_task(row: Row) -> Task:
    location, fields = row
    messages = _messages(row)
    checks = fields.get("checks")
    if not isinstance(checks, list) or not checks or not all(isinstance(check, dict) for check in checks):
        raise RecoverError(
            f'{location} has no list of "checks". Give it one or more objects such as {{"contains": "yes"}}.'
        )
    prompt = "\n".join(message["content"] for message in messages)
    key = item_key(prompt) if fields.get("key") is None else str(fields["key"])
    return Task(key, messages, [_parse_check(location, check, prompt) for check in checks])


def _messages(row: Row) -> list[Message]:
    location, fields = row
    if "messages" not in fields:
        return [{"role": "user", "content": text_field(row, "prompt")}]
    messages = fields["messages"]
    is_valid = isinstance(messages, list) and all(
        isinstance(m, dict) and all(isinstance(m.get(name), str) for name in ("role", "content")) for m in messages
    )
    if not is_valid or not messages or messages[-1]["role"] != "user":
        raise RecoverError(
            f'{location} has no valid "messages". Write a list of {{"role": …, "content": …}} that ends with the user.'
        )
    return [{"role": m["role"], "content": m["content"]} for m in messages]


def _parse_check(location: str, check: dict[str, Any], prompt_text: str) -> tuple[str, Check]:
    if "instruction" in check and check.keys() <= {"instruction", "kwargs"}:
        kwargs = check.get("kwargs") or {}
        line = {"prompt": prompt_text, "instruction_id_list": [check["instruction"]], "kwargs": [kwargs]}
        prompt: Prompt = parse_prompt((location, line))
        return prompt.instructions[0], lambda answer: judge(prompt, answer).passed
    if len(check) != 1 or next(iter(check)) not in CHECKS:
        raise RecoverError(
            f"{location} has an unknown check, {check!r}. Use {', '.join(sorted(CHECKS))} or instruction, each in an "
            "object of its own."
        )
    [(kind, value)] = check.items()
    value_type, passes = CHECKS[kind]
    is_blank = value == "" or (kind in ("starts_with", "ends_with") and not str(value).strip())
    if not isinstance(value, value_type) or (isinstance(value, bool) and value_type is not bool) or is_blank:
        raise RecoverError(
            f'{location} has the value {value!r} for the check "{kind}". Write a {TYPE_NAMES[value_type]}.'
        )
    if kind == "matches":
        try:
            regex.compile(value)
        except regex.error as error:
            raise RecoverError(
                f"{location} has {value!r}, which is not a regular expression ({error}). Correct the pattern."
            ) from error
    if passes is None:
        return kind, lambda answer: matches(answer.text, str(value), prompt_text)
    # An empty reply lacks everything and is short: it follows nothing, unless it is what is asked for.
    may_be_empty = kind == "finished" or (kind == "max_words" and value == 0)
    return kind, lambda answer: (may_be_empty or bool(answer.text.strip())) and passes(answer, value)


def _pattern_matches(pattern: str, text: str) -> bool:
    try:
        return regex.search(pattern, text, timeout=PATTERN_SECONDS) is not None
    except TimeoutError:
        return False


def _is_json(text: str) -> bool:
    inside = regex.fullmatch(r"\s*```(?:json\b)?(.*)```\s*", text, regex.DOTALL | regex.IGNORECASE)
    try:
        json.loads(inside[1] if inside else text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _folded(text: str) -> str:
    return _composed(text.casefold())


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


TYPE_NAMES = {str: "text", int: "whole number", bool: "value true or false"}
CHECKS: dict[str, tuple[type, Callable[[Answer, Any], bool] | None]] = {
    "contains": (str, lambda answer, value: _folded(value) in _folded(answer.text)),
    "lacks": (str, lambda answer, value: _folded(value) not in _folded(answer.text)),
    "says": (str, None),  # takes the prompt, too
    "equals": (str, lambda answer, value: _composed(answer.text).strip() == _composed(value).strip()),
    "starts_with": (str, lambda answer, value: _composed(answer.text).lstrip().startswith(_composed(value).lstrip())),
    "ends_with": (str, lambda answer, value: _composed(answer.text).rstrip().endswith(_composed(value).rstrip())),
    "matches": (str, lambda answer, value: _pattern_matches(value, answer.text)),
    "min_words": (int, lambda answer, value: len(answer.text.split()) >= value),
    "max_words": (int, lambda answer, value: len(answer.text.split()) <= value),
    "json": (bool, lambda answer, value: _is_json(answer.text) is value),
    "finished": (bool, lambda answer, value: answer.finished is value),
}


@dataclass(frozen=True)
class ReplyCheck:
    checks: tuple[Check, ...]
    rule: Any  # the checks, or the reference, as the row has them

    def __call__(self, text: str, finished: bool = True) -> bool:
        return self.share(text, finished) == 1

    def share(self, text: str, finished: bool = True) -> float:
        """Of the checks, those that the reply passes."""
        return fmean(check(Answer(text, finished)) for check in self.checks)


def reply_check(row: Row, prompt_text: str) -> ReplyCheck | None:
    """None if the row says nothing that a reply could be checked by."""
    location, fields = row
    if fields.get("checks"):
        checks = parse_task((location, {"prompt": prompt_text, "checks": fields["checks"]})).checks
        return ReplyCheck(tuple(check for _, check in checks), fields["checks"])
    for name in ANSWER_FIELDS:
        text = "" if fields.get(name) is None else str(fields[name])
        reference = text.rpartition(FINAL_ANSWER)[2].strip() if FINAL_ANSWER in text else text.strip()
        is_short = 0 < count_words(normalized_words(reference)) <= MAX_ANSWER_WORDS
        if is_short and (name == "answer" or FINAL_ANSWER in text):
            return _by_reference(reference, prompt_text)
    return None


def _by_reference(reference: str, prompt_text: str) -> ReplyCheck:
    if as_number(reference) is not None:
        return ReplyCheck((lambda answer: last_number_matches(answer.text, reference),), reference)
    return ReplyCheck((lambda answer: matches(answer.text, reference, prompt_text),), reference)
