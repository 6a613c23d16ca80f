from pathlib import Path

import pytest

from evals.results import Item, Result
from evals.splits import Blocks, oversampled_count, select_items, split_of
from evals.subject import Subject
from evals.suites import suite_measurement as suites
from evals.suites.suite_measurement import main_prompt_task, measure
from recovery.errors import RecoverError
from tests.chats import write_jsonl
from tests.evals.fakes import fake_subject

LAB = {"behaviour": "lab", "retention": "lab", "knowledge": "lab"}


def keys(results: list[Result]) -> dict[str, set[str]]:
    return {result.task: set(result.passed_by_key()) for result in results}


def test_a_fifth_of_the_keys_is_in_the_probe() -> None:
    splits = [split_of(str(i)) for i in range(5000)]
    assert 0.18 < splits.count("probe") / 5000 < 0.22


def test_the_splits_of_the_labs_and_of_the_users_items_are_disjoint_and_complete(tmp_path: Path) -> None:
    lab = {split: keys(measure(fake_subject("a"), limit=40, suites=LAB, split=split)) for split in ("probe", "final")}
    assert lab["probe"].keys() == {"ifeval", "refusals", "closed_book", "arithmetic", "own_world"}
    assert {len(found) for splits in lab.values() for found in splits.values()} == {40}
    questions = write_jsonl(tmp_path / "q.jsonl", [{"question": f"What is {i}?", "answer": str(i)} for i in range(60)])
    checks = write_jsonl(
        tmp_path / "mine.jsonl", [{"prompt": f"Say {i}.", "checks": [{"contains": str(i)}]} for i in range(60)]
    )
    own = {
        split: keys(measure(fake_subject("3"), questions=questions, suites={"behaviour": str(checks)}, split=split))
        for split in ("probe", "final", "all")
    }
    for splits in (lab, own):
        assert splits["probe"].keys() == splits["final"].keys()
        assert all(splits["probe"][task].isdisjoint(splits["final"][task]) for task in splits["probe"])
    for task in ("closed_book", "mine"):
        assert own["probe"][task] | own["final"][task] == own["all"][task]
        assert len(own["all"][task]) == 60


def test_the_split_is_in_the_settings_and_all_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    docs = [
        {"key": i, "prompt": f"Hi {i}", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
        for i in range(30)
    ]
    monkeypatch.setattr(suites, "public_ifeval", lambda: docs)
    [probe] = measure(fake_subject("a"), "behaviour", split="probe")
    [complete] = measure(fake_subject("a"), "behaviour")
    assert probe.settings["part"] == "probe"
    assert [item.key for item in complete.items] == [str(i) for i in range(30)]
    assert set(probe.passed_by_key()) == {str(i) for i in range(30) if split_of(str(i)) == "probe"}


def test_a_limit_is_filled_from_the_split() -> None:
    assert (
        select_items(map(str, range(1000)), str, "probe", 7)
        == [k for k in map(str, range(1000)) if split_of(k) == "probe"][:7]
    )
    for limit in (1, 10, 300):
        for split in ("probe", "final"):
            assert len(select_items(map(str, range(oversampled_count(limit, split))), str, split, limit)) == limit


def test_an_empty_split_is_an_error() -> None:
    final = next(str(i) for i in range(99) if split_of(str(i)) == "final")
    with pytest.raises(RecoverError, match="No item is in"):
        select_items([final], str, "probe")


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Fifty prompts, sorted by kind: the first half can be followed, the second cannot."""
    rows = [{"prompt": f"Prompt {i}.", "checks": [{"equals": "yes" if i < 25 else "no"}]} for i in range(50)]
    return write_jsonl(tmp_path / "checks.jsonl", rows)


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
    assert main_prompt_task({"behaviour": "one.jsonl,my/ifeval.jsonl"}) == "my/ifeval.jsonl", "its result has that name"
    assert main_prompt_task({"behaviour": "one.jsonl,lab.jsonl"}) == "one.jsonl"
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
