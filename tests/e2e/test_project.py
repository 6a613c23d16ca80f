"""Two cycles through the real command line: the second is judged on the questions of the first, too."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from recovery.lab import make_world
from tests.e2e.command_line import Completed, recover
from tests.pipelines.options import set_options

pytestmark = pytest.mark.release
QUICK = set_options(
    *("midtrain.max_steps=60", "midtrain.generated_texts=48"),
    *("distill.steps=12", "distill.prompts=256", "distill.probe_every=6", "distill.probe_items=60"),
    *("gate.behaviour_margin=0.3", "gate.keep_knowledge=0.5", "gate.keep_earlier=0.1", "gate.keep_retention=0"),
)


def cycle(folder: Path, number: int, *more: str) -> Completed:
    world = folder / f"world-{number}"
    make_world(50 + number, size="quick").write(world)
    docs, questions = world / "docs", world / "questions.jsonl"
    return recover(folder, "cycle", "--docs", docs, "--questions", questions, "--limit", 120, *QUICK, *more)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("life")
    results: dict[str, Any] = {"folder": folder, "init": recover(folder, "init")}
    results["first"] = cycle(folder, 1, "--mix", "documents")
    results["second"] = cycle(folder, 2, "--mix", "earlier=0.3,texts=0.2", "--warm-start", "auto")
    return results


def test_the_last_cycle_says_how_long_the_next_may_take(results: dict[str, Any]) -> None:
    assert "The last " not in results["first"].stderr
    assert re.search(
        r"The last cycle here took .*: mid-training .*, measuring .*, distilling .*", results["second"].stderr
    )


def test_the_second_cycle_is_judged_on_the_questions_of_the_first_too(results: dict[str, Any]) -> None:
    first, second = results["first"], results["second"]
    assert (first.exit_code, second.exit_code) == (0, 0), second.stderr
    assert first.data["verdict"]["earlier"] == {}
    assert set(second.data["verdict"]["earlier"]) == {"1"}
    assert second.data["verdict"]["earlier"]["1"]["passed"]
    mix = "5 of 16 rows from 1 earlier corpus, 3 of them with soft labels; 3 of 16 rows from texts by the clean base"
    assert mix in second.stderr
    assert second.data["warm_start"]["share"] in (0.0, 0.3, 0.5, 0.7)
    assert set(second.data["warm_start"]["tried"]) == {"0.0", "0.3", "0.5", "0.7"}


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
