"""Two cycles through the real command line, decisions, and the repair of a fine-tuned model without documents."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from recovery.lab import BASE, make_world
from tests.e2e.command_line import Completed, recover

pytestmark = pytest.mark.release
QUICK = [
    *("--set", "midtrain.max_steps=60"),
    *("--set", "distill.steps=12"),
    *("--set", "distill.prompts=256"),
    *("--set", "distill.probe_every=6"),
    *("--set", "distill.probe_items=60"),
    *("--set", "gate.behaviour_margin=0.3"),
    *("--set", "gate.keep_knowledge=0.5"),
    *("--set", "gate.keep_earlier=0.1"),
    *("--set", "gate.keep_retention=0"),
]

NO_BASE_TEXTS = ["--set", "midtrain.mix.answers=0", "--set", "midtrain.mix.texts=0"]
WITH_BASE_TEXTS = [
    *("--set", "midtrain.mix.answers=0"),
    *("--set", "midtrain.mix.earlier=0.3"),
    *("--set", "midtrain.mix.texts=0.2"),
    *("--set", "midtrain.generated_texts=48"),
]


def cycle(folder: Path, number: int, *more: str) -> Completed:
    world = folder / f"world-{number}"
    make_world(50 + number, size="quick").write(world)
    docs, questions = world / "docs", world / "questions.jsonl"
    return recover(folder, "cycle", "--docs", docs, "--questions", questions, "--limit", 120, *QUICK, *more)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("life")
    results: dict[str, Any] = {"folder": folder, "init": recover(folder, "init")}
    results["dry"] = cycle(folder, 1, *NO_BASE_TEXTS, "--dry-run")
    results["first"] = cycle(folder, 1, *NO_BASE_TEXTS)
    results["second"] = cycle(folder, 2, *WITH_BASE_TEXTS, "--warm-start", "auto")
    results["compare"] = recover(folder, "compare", "cycle:1", "cycle:2", "--suite", "behaviour", "--limit", 120)
    results["drift"] = recover(
        folder, "compare", "cycle:1/midtrained", "cycle:1", "--suite", "behaviour", "--limit", 120, "--drift"
    )
    results["lineage"] = recover(folder, "lineage", "cycle:2")
    results["rollback"] = recover(folder, "rollback", "--reason", "to test it")
    results["promote"] = recover(folder, "promote", "cycle:2", "--reason", "back again")
    results["status"] = recover(folder, "status")
    results["runs"] = recover(folder, "runs")
    return results


def test_a_dry_run_changes_nothing(results: dict[str, Any]) -> None:
    plan = results["dry"].data
    assert results["dry"].exit_code == 0, results["dry"].stderr
    assert (plan["command"], plan["start"], plan["teacher"]) == ("cycle", "base", "base")
    assert plan["files"] > 100
    assert results["first"].data["cycle"] == 1


def test_the_last_cycle_says_how_long_the_next_may_take(results: dict[str, Any]) -> None:
    assert "The last " not in results["first"].stderr
    assert re.search(
        r"The last cycle here took .*: mid-training .*, measuring .*, distilling .*", results["second"].stderr
    )


def test_the_second_cycle_is_judged_on_the_questions_of_the_first_too(results: dict[str, Any]) -> None:
    first, second = results["first"], results["second"]
    assert (first.exit_code, second.exit_code) == (0, 0), second.stderr
    assert first.data["earlier"] == {}
    assert set(second.data["earlier"]) == {"1"}
    assert second.data["verdict"]["earlier"]["1"]["passed"]
    mix = "5 of 16 rows from 1 earlier corpus, 3 of them with soft labels; 3 of 16 rows from texts by the clean base"
    assert mix in second.stderr
    assert second.data["warm_start"]["share"] in (0.0, 0.3, 0.5, 0.7)
    assert set(second.data["warm_start"]["tried"]) == {"0.0", "0.3", "0.5", "0.7"}


def test_lineage_reaches_the_clean_model_and_decisions_change_the_current_one(results: dict[str, Any]) -> None:
    lineage = [row["checkpoint"] for row in results["lineage"].data["lineage"]]
    assert lineage == ["cycle:2/recovered", "cycle:2/midtrained", "cycle:1/recovered", "cycle:1/midtrained", "base"]
    assert results["rollback"].data["current"] == "cycle:1/recovered"
    assert results["promote"].data["current"] == results["status"].data["current"] == "cycle:2/recovered"
    (task, *_) = results["compare"].data["tasks"]
    assert task["n"] == 120
    assert task["lost"] + task["gained"] <= 120
    assert {run["status"] for run in results["runs"].data["runs"]} == {"done"}


def test_compare_shows_forgetting_and_drift(results: dict[str, Any]) -> None:
    completed = results["drift"]
    assert completed.exit_code == 0, completed.stderr
    data = completed.data
    assert data["forgetting"]["first"] > data["forgetting"]["second"]
    assert data["retention"]["first"] < data["retention"]["second"]
    task = data["tasks"][0]
    assert task["recovered"]["value"] > 0
    kls = {side: data["drift"][side][0]["metrics"] for side in ("first", "second")}
    assert kls["first"]["kl_from_clean"]["value"] > kls["second"]["kl_from_clean"]["value"]
    assert kls["first"]["kl_from_clean/new_task"]["value"] > 0
    assert [result["task"] for result in data["drift"]["first"]] == ["drift", "diversity"]
    repeated = recover(
        results["folder"], "compare", "cycle:1", "base", "--suite", "behaviour", "--limit", 120, "--drift"
    )
    assert repeated.stderr.count("Reusing the stored drift of cycle:1/recovered") == 1


def test_rollouts_metrics_and_documents_are_stored(results: dict[str, Any]) -> None:
    with sqlite3.connect(results["folder"] / ".recover" / "recover.db") as record:
        rollouts = record.execute("SELECT tokens FROM rollouts").fetchall()
        names = {name for (name,) in record.execute("SELECT DISTINCT name FROM points")}
        documents = record.execute("SELECT count(*) FROM documents").fetchone()
    assert rollouts
    text, kl, student_top, teacher_top = json.loads(rollouts[0][0])[0]
    assert isinstance(text, str)
    assert kl >= -1e-4
    assert len(student_top) == len(teacher_top) == 3
    assert {"loss", "kl", "entropy", "probe/behaviour", "probe/knowledge"} <= names
    assert documents[0] > 100


def test_a_fine_tuned_model_is_repaired_without_documents(results: dict[str, Any], tmp_path: Path) -> None:
    damaged = recover(results["folder"], "show", "cycle:1/midtrained").data["path"]
    completed = recover(tmp_path, "distill", "--student", damaged, "--teacher", BASE, "--limit", 120, *QUICK)
    assert completed.exit_code in (0, 3), completed.stderr
    assert completed.data["recovered"]["behaviour"] > completed.data["damaged"]["behaviour"]
    assert completed.data["verdict"]["knowledge"] is None
    assert completed.data["verdict"]["knowledge"] is None
