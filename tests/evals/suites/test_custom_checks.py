import json
import time
from pathlib import Path
from typing import Any

import pytest

from evals.results import Metric
from evals.subject import Answer
from evals.suites.custom_checks import measure_checks, parse_task, read_tasks, reply_check
from evals.suites.suite_measurement import measure
from recovery.errors import RecoverError
from tests.chats import write_jsonl
from tests.evals.fakes import fake_subject


def passes(check: dict[str, Any], reply: str, *, finished: bool = True) -> bool:
    task = parse_task(("Line 1", {"prompt": "Go on.", "checks": [check]}))
    return task.checks[0][1](Answer(reply, finished))


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        ({"contains": "Blue"}, "A blue house", "A red house"),
        ({"lacks": "sorry"}, "Here you are", "Sorry, no"),
        ({"says": "the Green house"}, "It is a green house.", "It is not a green house"),
        ({"equals": "yes"}, " yes\n", "yes."),
        ({"starts_with": "Dear"}, "\nDear Ada", "Ada, dear"),
        ({"ends_with": "Yours"}, "Hello. Yours \n", "Yours, Ada"),
        ({"starts_with": " Dear"}, "Dear Ada", "Ada, dear"),
        ({"ends_with": "Yours\n"}, "Hello. Yours\n", "Yours, Ada"),
        ({"matches": r"^\d+$"}, "123", "12a"),
        ({"matches": r"(?i)APPLE|pear"}, "an apple", "a plum"),
        ({"min_words": 3}, "one two three", "one two"),
        ({"max_words": 2}, "one two", "one two three"),
        ({"json": True}, '```json\n{"a": [1]}\n```', "{a}"),
        ({"json": True}, '```json\r\n{"a": 1}\r\n```', "```python\n1\n```"),
        ({"json": True}, '```JSON\n{"a": 1}```', "NaN"),
        ({"json": False}, "plain", "[1]"),
        ({"contains": "café"}, "Un CAFE\u0301", "cafe"),
        ({"lacks": "cafe\u0301"}, "cafe", "Un café"),
        ({"equals": "cafe\u0301"}, "café", "cafe"),
        ({"starts_with": "cafe\u0301"}, "café au lait", "cafe au lait"),
        ({"ends_with": "café"}, "Un cafe\u0301", "Un cafe"),
        ({"instruction": "punctuation:no_comma"}, "Hello there", "Hello, there"),
        (
            {"instruction": "length_constraints:number_words", "kwargs": {"relation": "at least", "num_words": 3}},
            "a b c",
            "a b",
        ),
    ],
)
def test_every_check(check: dict[str, Any], right: str, wrong: str) -> None:
    assert passes(check, right)
    assert not passes(check, wrong)


@pytest.mark.parametrize("check", [{"lacks": "sorry"}, {"max_words": 2}, {"json": False}, {"matches": "^[^,]*$"}])
def test_a_reply_that_says_nothing_follows_nothing(check: dict[str, Any]) -> None:
    assert passes(check, "Yes")
    assert not passes(check, " \n")
    assert passes({"max_words": 0}, "")
    assert passes({"finished": True}, "")


@pytest.mark.parametrize("digits", [400, 5_000])
def test_a_loop_of_digits_is_a_wrong_number(digits: int) -> None:
    check = reply_check(("Line 1", {"answer": "5"}), "What is 2 + 3?")
    assert check is not None
    assert not check(f"It is {'1' * digits}")
    assert check("It is 5")


@pytest.mark.parametrize("answer", ["NaN", "Infinity", "中华人民共和国国务院"])
def test_an_answer_of_a_few_words_that_is_no_finite_number_is_a_text(answer: str) -> None:
    check = reply_check(("Line 1", {"answer": answer}), "What is 0/0?")
    assert check is not None
    assert check(f"It is {answer}.")


def test_says_does_not_count_the_words_of_the_question_before_the_answer() -> None:
    question = "Which town in the north of the old kingdom was the first to build a bridge of stone?"
    task = parse_task(("Line 1", {"prompt": question, "checks": [{"says": "Orlan"}]}))
    reply = "The town in the north of the old kingdom that was the first to build a bridge of stone was Orlan."
    assert task.checks[0][1](Answer(reply, True))


def test_the_check_of_a_finished_reply() -> None:
    assert passes({"finished": True}, "x")
    assert not passes({"finished": True}, "x", finished=False)


@pytest.mark.parametrize(
    "reply", ["", "\x00\ud800", "[" * 100_000, "a" * 100_000, "\n" * 100_000, "1" * 100_000, f"{'1' * 5000}½"]
)
def test_no_reply_breaks_a_check(reply: str) -> None:
    for check in ({"json": True}, {"matches": r"(a|a)*b"}, {"says": "yes"}, {"contains": "yes"}, {"max_words": 3}):
        assert passes(check, reply) in (True, False)


def test_a_regular_expression_has_a_time_limit() -> None:
    started = time.perf_counter()
    assert not passes({"matches": r"^(a+)+$"}, "a" * 5000 + "b")
    assert time.perf_counter() - started < 10


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    lines = [
        {"prompt": "Hi", "checks": [{"contains": "hello"}, {"max_words": 2}]},
        {"key": "json", "prompt": "Data?", "checks": [{"json": True}]},
        {
            "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Who?"}],
            "checks": [{"max_words": 1}],
        },
    ]
    return write_jsonl(tmp_path / "house style.jsonl", lines)


def test_the_metrics_and_items_of_a_suite(tasks: Path) -> None:
    subject = fake_subject({"Hi": "hello my friend", "Data?": "{}", "Who?": "Me"})
    [result] = measure(subject, "behaviour", suites={"behaviour": str(tasks)})
    assert (result.task, result.suite, result.data) == ("house style", "behaviour", "house style.jsonl")
    assert {name: metric.value for name, metric in result.metrics.items()} == {
        "passed": pytest.approx(2 / 3),
        "finished": 1.0,
        "check/contains": 1.0,
        "check/json": 1.0,
        "check/max_words": 0.5,
    }
    assert result.headline.value == pytest.approx(2 / 3)
    assert [item.passed for item in result.items] == [False, True, True]
    assert result.items[0].verdicts["checks"] == [["contains", True], ["max_words", False]]
    assert result.items[1].key == "json"
    assert result.items[2].prompt == "Be short.\nWho?"
    json.dumps(result.to_json(items=True), allow_nan=False)


def test_replies_that_reach_the_token_limit(tasks: Path) -> None:
    result = measure_checks(fake_subject("on and " * 500), read_tasks(tasks), suite="behaviour", path=tasks)
    assert result.metrics["finished"].value == 0.0
    assert result.headline.value == 0.0
    assert all(len(item.answer) == 512 for item in result.items)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"checks": [{"json": True}]}, 'has no "prompt"'),
        ({"prompt": "x"}, 'has no list of "checks"'),
        ({"prompt": "x", "checks": []}, 'has no list of "checks"'),
        ({"prompt": "x", "checks": [{"smiles": True}]}, "has an unknown check"),
        ({"prompt": "x", "checks": [{"json": True, "contains": "a"}]}, "has an unknown check"),
        ({"prompt": "x", "checks": [{"instruction": "change_case:english_lowercase", "contains": "a"}]}, "of its own"),
        ({"prompt": "x", "checks": [{"max_words": "3"}]}, "Write a whole number."),
        ({"prompt": "x", "checks": [{"max_words": True}]}, "Write a whole number."),
        ({"prompt": "x", "checks": [{"contains": ""}]}, "Write a text."),
        ({"prompt": "x", "checks": [{"ends_with": " \n"}]}, "Write a text."),
        ({"prompt": "x", "checks": [{"matches": "("}]}, "not a regular expression"),
        ({"prompt": "x", "checks": [{"instruction": "be:nice"}]}, "unknown instruction"),
        ({"messages": [{"role": "user"}], "checks": [{"json": True}]}, 'has no valid "messages"'),
        ({"messages": [{"role": "assistant", "content": "a"}], "checks": [{"json": True}]}, 'has no valid "messages"'),
    ],
)
def test_a_malformed_line_is_reported_by_number(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    file = write_jsonl(tmp_path / "mine.jsonl", [{"prompt": "ok", "checks": [{"json": True}]}, line])
    with pytest.raises(RecoverError, match="Line 2") as caught:
        read_tasks(file)
    assert message in str(caught.value)


def test_tasks_must_have_different_keys_and_null_is_none(tmp_path: Path) -> None:
    one, other = ({"key": None, "prompt": prompt, "checks": [{"json": True}]} for prompt in ("one", "two"))
    file = write_jsonl(tmp_path / "mine.jsonl", [one, other])
    assert len({task.key for task in read_tasks(file)}) == 2
    write_jsonl(file, [one, one])
    with pytest.raises(RecoverError, match="key"):
        read_tasks(file)


def test_checks_of_one_task_are_one_group() -> None:
    lines = [{"prompt": f"Say {n}", "checks": [{"contains": "a"}] * 5} for n in range(8)]
    tasks = [parse_task((f"Line {i}", line)) for i, line in enumerate(lines)]
    subject = fake_subject({task.prompt_text: "a" if i < 4 else "b" for i, task in enumerate(tasks)})
    result = measure_checks(subject, tasks, suite="behaviour", path="house.jsonl")
    assert result.metrics["check/contains"] == Metric.from_groups([[True] * 5] * 4 + [[False] * 5] * 4)
    assert result.metrics["check/contains"].n == 40
