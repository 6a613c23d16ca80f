"""What was rejected is tried again from the same mid-trained checkpoint, through the real command line."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from recovery.lab import make_world
from tests.e2e.command_line import recover
from tests.pipelines.options import SMALL_DISTILLATION, set_options

pytestmark = pytest.mark.slow

SMALL = [*SMALL_DISTILLATION, *set_options("distill.steps=2")]
STRICT = set_options("gate.behaviour_margin=0", "gate.keep_knowledge=0", "gate.keep_retention=0")
LENIENT = set_options("gate.behaviour_margin=0.99", "gate.keep_knowledge=0", "gate.keep_retention=0")


@pytest.fixture(scope="module")
def results(damaged_project: Path) -> dict[str, Any]:
    folder = damaged_project
    distill = ["distill", "--teacher", "base", "--limit", 8, *SMALL]
    results: dict[str, Any] = {"folder": folder}
    results["first"] = recover(folder, *distill, *STRICT)
    results["status"] = recover(folder, "status")
    results["second"] = recover(folder, *distill, *STRICT, "--set", "distill.steps=3", as_json=False)
    results["runs after two"] = recover(folder, "runs")
    results["third"] = recover(folder, *distill, *LENIENT)
    results["status after three"] = recover(folder, "status")
    results["fourth"] = recover(folder, *distill, *LENIENT)
    results["show"] = recover(folder, "show", "cycle:1")
    return results


def test_a_rejected_attempt_has_advice_and_status_repeats_it(results: dict[str, Any]) -> None:
    first, status = results["first"], results["status"]
    assert first.exit_code == 3, first.stderr
    assert first.data["next_attempt"].startswith("recover distill --teacher base --")
    assert status.data["next"] == first.data["next_attempt"]


def test_distill_tries_again_within_the_same_cycle(results: dict[str, Any]) -> None:
    second, third = results["second"], results["third"]
    assert second.exit_code == 3, second.stderr
    assert second.data.splitlines()[-1].startswith("Try again with ")
    assert "Reusing the stored results of the clean model" in second.stderr
    assert third.exit_code == 0, third.stderr
    assert (third.data["cycle"], third.data["checkpoint"]) == (1, "cycle:1/recovered")
    assert third.data["next_attempt"] is None
    runs = [(run["kind"], run["cycle"]) for run in results["runs after two"].data["runs"] if run["kind"] != "eval"]
    assert runs == [("distill", 1), ("distill", 1), ("midtrain", 1)]
    assert [row["checkpoint"] for row in results["show"].data["lineage"]] == [
        "cycle:1/recovered",
        "cycle:1/midtrained",
        "base",
    ]


def test_the_record_keeps_every_attempt_with_its_verdict_and_its_decision(results: dict[str, Any]) -> None:
    with closing(sqlite3.connect(results["folder"] / ".recover/recover.db")) as record:
        attempts = record.execute(
            "SELECT c.step, c.verdict IS NOT NULL, p.decision FROM checkpoints c "
            "JOIN promotions p ON p.checkpoint_id = c.id WHERE c.role = 'recovered' ORDER BY c.id"
        ).fetchall()
    assert attempts == [(2, 1, "rejected"), (3, 1, "rejected"), (2, 1, "promoted")]
    status = results["status after three"].data
    assert [cycle["status"] for cycle in status["cycles"]] == ["promoted"]
    assert (status["current"], status["next"]) == ("cycle:1/recovered", "recover cycle --docs DIR")


def test_after_a_promotion_the_error_names_the_reference_to_begin_again_from(results: dict[str, Any]) -> None:
    assert results["fourth"].exit_code == 1
    assert "`--student cycle:1/midtrained`" in results["fourth"].data["error"]


@pytest.mark.release
def test_without_the_midtrained_weights_there_is_nothing_to_try_again(tmp_path: Path) -> None:
    make_world(77, size="quick").write(tmp_path / "corpus")
    docs, short = tmp_path / "corpus/docs", set_options("midtrain.max_steps=3", "midtrain.rows=4")
    mix = ["--mix", "documents"]
    recover(tmp_path, "cycle", "--docs", docs, *mix, "--limit", 12, *SMALL, *short, *STRICT).ended(3)
    recover(tmp_path, "gc", "--rejected").ended(0)
    again = recover(tmp_path, "distill", "--teacher", "base")
    assert again.exit_code == 1
    assert again.data["error"] == (
        "The weights of cycle:1/midtrained were deleted (`recover gc --rejected`). "
        f"Mid-train again with `recover cycle --docs {docs}`."
    )
    assert recover(tmp_path, "status").data["next"] == "recover cycle --docs DIR"
