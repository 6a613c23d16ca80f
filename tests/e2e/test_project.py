"""A project's life through the real command line: two cycles, a person's decisions, an export that others can load, and
a fine-tune repaired without any documents."""

import json
import os
import sqlite3
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from recovery.lab import BASE, make_world
from tests.e2e.command_line import Ran, recover

pytestmark = pytest.mark.slow
QUICK = [
    *("--set", "midtrain.max_steps=60"),
    *("--set", "distill.steps=12"),
    *("--set", "distill.prompts=256"),
    *("--set", "distill.probe_every=6"),
    *("--set", "distill.probe_items=60"),
    *("--set", "gate.behaviour_margin=0.3"),
    *("--set", "gate.keep_knowledge=0.5"),
    *("--set", "gate.keep_earlier=0.1"),
]

ALONE = ["--set", "midtrain.mix.answers=0", "--set", "midtrain.mix.texts=0"]
PREVENTION = [
    *("--set", "midtrain.mix.answers=0"),
    *("--set", "midtrain.mix.earlier=0.3"),
    *("--set", "midtrain.mix.texts=0.2"),
    *("--set", "midtrain.generated_texts=48"),
]


def cycle(folder: Path, number: int, *more: str) -> Ran:
    world = folder / f"world-{number}"
    make_world(50 + number, size="quick").write(world)
    docs, questions = world / "docs", world / "questions.jsonl"
    return recover(folder, "cycle", "--docs", docs, "--questions", questions, "--limit", 120, *QUICK, *more)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("life")
    ran: dict[str, Any] = {"folder": folder, "init": recover(folder, "init")}
    ran["dry"] = cycle(folder, 1, *ALONE, "--dry-run")
    ran["first"] = cycle(folder, 1, *ALONE)
    ran["second"] = cycle(folder, 2, *PREVENTION, "--warm-start", "auto")
    ran["compare"] = recover(folder, "compare", "cycle:1", "cycle:2", "--suite", "behaviour", "--limit", 120)
    ran["drift"] = recover(
        folder, "compare", "cycle:1/midtrained", "cycle:1", "--suite", "behaviour", "--limit", 120, "--drift"
    )
    ran["lineage"] = recover(folder, "lineage", "cycle:2")
    ran["rollback"] = recover(folder, "rollback", "--why", "to see it done")
    ran["promote"] = recover(folder, "promote", "cycle:2", "--why", "back again")
    ran["export"] = recover(folder, "export", "current", "--to", folder / "exported")
    ran["status"] = recover(folder, "status")
    ran["runs"] = recover(folder, "runs")
    return ran


def test_a_dry_run_says_what_would_be_done_and_does_nothing(lived: dict[str, Any]) -> None:
    found = lived["dry"].found
    assert lived["dry"].code == 0, lived["dry"].words
    assert (found["command"], found["start"], found["teacher"]) == ("cycle", "base", "base")
    assert found["files"] > 100
    assert lived["first"].found["cycle"] == 1


def test_two_cycles_are_promoted_and_the_second_is_judged_by_the_firsts_questions_too(lived: dict[str, Any]) -> None:
    first, second = lived["first"], lived["second"]
    assert (first.code, second.code) == (0, 0), second.words
    assert first.found["earlier"] == {}
    assert set(second.found["earlier"]) == {"1"}
    assert second.found["verdict"]["earlier"]["1"]["passed"]
    beside = "5 of 16 rows from 1 earlier corpora, 3 of them as cycle:1/recovered knows them, 3 of 16 rows from what"
    assert beside in second.words
    assert second.found["warm_start"]["share"] in (0.0, 0.3, 0.5, 0.7)
    assert set(second.found["warm_start"]["tried"]) == {"0.0", "0.3", "0.5", "0.7"}


def test_the_line_goes_back_to_the_clean_model_and_decisions_move_what_is_current(lived: dict[str, Any]) -> None:
    line = [each["checkpoint"] for each in lived["lineage"].found["lineage"]]
    assert line == ["cycle:2/recovered", "cycle:2/midtrained", "cycle:1/recovered", "cycle:1/midtrained", "base"]
    assert lived["rollback"].found["current"] == "cycle:1/recovered"
    assert lived["promote"].found["current"] == lived["status"].found["current"] == "cycle:2/recovered"
    (task, *_) = lived["compare"].found["tasks"]
    assert task["n"] == 120
    assert task["lost"] + task["gained"] <= 120
    assert {run["status"] for run in lived["runs"].found["runs"]} == {"done"}


def test_what_was_forgotten_and_how_far_each_has_moved(lived: dict[str, Any]) -> None:
    ran = lived["drift"]
    assert ran.code == 0, ran.words
    found = ran.found
    assert found["forgetting"]["first"] > found["forgetting"]["second"]
    assert found["retention"]["first"] < found["retention"]["second"]
    task = found["tasks"][0]
    assert task["recovered"]["value"] > 0
    kls = {side: found["drift"][side][0]["metrics"] for side in ("first", "second")}
    assert kls["first"]["kl_from_clean"]["value"] > kls["second"]["kl_from_clean"]["value"]
    assert kls["first"]["kl_from_clean/new_task"]["value"] > 0
    assert [each["task"] for each in found["drift"]["first"]] == ["drift", "diversity"]
    again = recover(lived["folder"], "compare", "cycle:1", "base", "--suite", "behaviour", "--limit", 120, "--drift")
    assert again.words.count("Reusing the stored drift of cycle:1/recovered") == 1


def test_what_a_run_saw_is_on_record(lived: dict[str, Any]) -> None:
    with sqlite3.connect(lived["folder"] / ".recover" / "recover.db") as record:
        rollouts = record.execute("SELECT tokens FROM rollouts").fetchall()
        names = {name for (name,) in record.execute("SELECT DISTINCT name FROM points")}
        documents = record.execute("SELECT count(*) FROM documents").fetchone()
    assert rollouts
    text, kl, ours, theirs = json.loads(rollouts[0][0])[0]
    assert isinstance(text, str)
    assert kl >= -1e-4
    assert len(ours) == len(theirs) == 3
    assert {"loss", "kl", "entropy", "probe/behaviour", "probe/knowledge"} <= names
    assert documents[0] > 100


def test_the_exported_model_answers_through_transformers(lived: dict[str, Any]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = lived["folder"] / "exported"
    assert lived["export"].found["kind"] == "full"
    card = (folder / "README.md").read_text()
    assert "cycle:1/midtrained" in card
    assert "| clean model" in card
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "Hello!"}], add_generation_prompt=True)[
        "input_ids"
    ]
    written = model.generate(input_ids=_tensor(asked), max_new_tokens=30, do_sample=False)
    assert tokenizer.decode(written[0][len(asked) :], skip_special_tokens=True).strip()


@pytest.mark.vllm
def test_the_exported_model_answers_through_vllm(lived: dict[str, Any]) -> None:
    if find_spec("vllm") is None and os.environ.get("RECOVER_REQUIRE_VLLM") != "1":
        pytest.skip("vllm is not installed; RECOVER_REQUIRE_VLLM=1 makes that a failure")
    from recovery.engines import Sampling
    from recovery.engines.vllm import VllmEngine
    from recovery.models.students import load_student

    student = load_student(str(lived["folder"] / "exported"), frozen=True)
    (reply,) = VllmEngine(student).generate([student.chat.prompt("Hello!")], Sampling(30, temperature=0.0))
    assert student.chat.text(reply.tokens).strip()


def test_a_fine_tune_is_repaired_without_any_documents(lived: dict[str, Any], tmp_path: Path) -> None:
    damaged = recover(lived["folder"], "show", "cycle:1/midtrained").found["path"]
    ran = recover(tmp_path, "distill", "--student", damaged, "--teacher", BASE, "--limit", 120, *QUICK)
    assert ran.code in (0, 3), ran.words
    assert ran.found["recovered"]["behaviour"] > ran.found["damaged"]["behaviour"]
    assert ran.found["verdict"]["knowledge"] is None
    assert "only instruction following was judged" in ran.found["verdict"]["reason"]


def _tensor(ids: list[int]) -> Any:
    import torch

    return torch.tensor([ids])
