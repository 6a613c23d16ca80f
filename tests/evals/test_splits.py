import json
from pathlib import Path

import pytest

from evals.results import Result
from evals.splits import oversampled_count, select_items, split_of
from evals.suites import suite_measurement as suites
from evals.suites.suite_measurement import measure
from recovery.errors import RecoverError
from tests.evals.fakes import fake_subject

LAB = {"behaviour": "lab", "retention": "lab", "knowledge": "lab"}


def keys(results: list[Result]) -> dict[str, set[str]]:
    return {result.task: set(result.passed_by_key()) for result in results}


def test_a_key_is_always_in_the_same_split() -> None:
    assert [split_of(str(i)) for i in range(8)] == [split_of(str(i)) for i in range(8)]
    splits = [split_of(str(i)) for i in range(5000)]
    assert 0.18 < splits.count("probe") / 5000 < 0.22


def test_the_splits_of_every_lab_task_are_disjoint() -> None:
    probe, final = (keys(measure(fake_subject("a"), limit=40, suites=LAB, split=split)) for split in ("probe", "final"))
    assert probe.keys() == final.keys() == {"ifeval", "refusals", "closed_book", "arithmetic", "own_world"}
    for task in probe:
        assert probe[task].isdisjoint(final[task]), task
        assert len(probe[task]) == len(final[task]) == 40, task


def test_the_splits_of_the_users_items_are_disjoint_and_complete(tmp_path: Path) -> None:
    questions, checks = tmp_path / "q.jsonl", tmp_path / "mine.jsonl"
    questions.write_text("\n".join(json.dumps({"question": f"What is {i}?", "answer": str(i)}) for i in range(60)))
    checks.write_text(
        "\n".join(json.dumps({"prompt": f"Say {i}.", "checks": [{"contains": str(i)}]}) for i in range(60))
    )
    results = {
        split: keys(measure(fake_subject("3"), questions=questions, suites={"behaviour": str(checks)}, split=split))
        for split in ("probe", "final", "all")
    }
    for task in ("closed_book", "mine"):
        assert results["probe"][task].isdisjoint(results["final"][task])
        assert results["probe"][task] | results["final"][task] == results["all"][task]
        assert len(results["all"][task]) == 60


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
