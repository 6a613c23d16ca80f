"""Prompts asked in blocks: how many, in which order, and what an interruption leaves."""

import json
from pathlib import Path

import pytest

from evals.results import Item, Result
from evals.splits import Blocks
from evals.subject import Subject
from evals.suites.suite_measurement import main_prompt_task, measure
from tests.evals.fakes import fake_subject


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Fifty prompts, sorted by kind: the first half can be followed, the second cannot."""
    file = tmp_path / "checks.jsonl"
    rows = [{"prompt": f"Prompt {i}.", "checks": [{"equals": "yes" if i < 25 else "no"}]} for i in range(50)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def ask(subject: Subject, tasks: Path, blocks: Blocks | None) -> Result:
    [result] = measure(subject, "behaviour", suites={"behaviour": str(tasks)}, blocks=blocks)
    return result


def test_all_blocks_give_the_numbers_of_asking_all_at_once(tasks: Path) -> None:
    few = ask(fake_subject("yes"), tasks, Blocks(10, lambda items: len(items) >= 20))
    assert (len(few.items), few.settings["block"], few.settings["of"]) == (20, 10, 50)
    assert 0.2 < few.headline.value < 0.8  # a sorted file is asked in another order
    whole, in_blocks = (ask(fake_subject("yes"), tasks, blocks) for blocks in (None, Blocks(10, lambda items: False)))
    assert whole.metrics == in_blocks.metrics
    assert whole.passed_by_key() == in_blocks.passed_by_key()
    assert "block" not in whole.settings
    assert "block" not in ask(fake_subject("yes"), tasks, Blocks(60, lambda items: False)).settings


def test_the_order_depends_on_the_keys_alone(tasks: Path) -> None:
    first = ask(fake_subject("yes"), tasks, Blocks(10, lambda items: True))
    tasks.write_text("".join(reversed(tasks.read_text().splitlines(keepends=True))))
    assert ask(fake_subject("yes"), tasks, Blocks(10, lambda items: True)).items == first.items


def test_items_of_other_prompts_are_not_used(tasks: Path) -> None:
    others = [Item(str(i), "", "", True) for i in range(20)]
    result = ask(fake_subject("yes"), tasks, Blocks(10, lambda items: len(items) >= 20, earlier=others))
    assert len(result.items) == 20
    assert not {item.key for item in result.items} & {item.key for item in others}


def test_the_task_that_the_gate_judges_is_the_one_asked_in_blocks() -> None:
    assert main_prompt_task({}) == "ifeval"
    assert main_prompt_task({"behaviour": "one.jsonl,lab"}) == "lab"
    assert main_prompt_task({"behaviour": "one.jsonl,two.jsonl"}) == "one.jsonl"
    assert main_prompt_task({"behaviour": "gsm8k,one.jsonl"}) is None
    assert main_prompt_task({"behaviour": ""}) is None


def test_only_the_main_task_is_asked_in_blocks(tasks: Path) -> None:
    other = tasks.with_name("other.jsonl")
    other.write_text(tasks.read_text())
    suites = {"behaviour": f"{tasks},{other}"}
    results = measure(fake_subject("yes"), "behaviour", suites=suites, blocks=Blocks(10, lambda items: True))
    assert [len(result.items) for result in results] == [10, 50]
    own = measure(fake_subject("Iron."), "behaviour", limit=30, suites={"behaviour": "lab"}, blocks=Blocks(10, bool))
    assert [len(result.items) for result in own] == [10, 30]
