"""The benchmarks run, and the results they compare agree; times are not checked."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import (
    cycle_file,
    dashboard_pages,
    divergence,
    document_reading,
    forgetting_callback,
    gate_agreement,
    midtrain,
    opd_step,
    precision,
    tracker,
)
from evals.results import Item, Metric, Result
from pipelines.evaluation.checkpoint_measurement import store_results
from pipelines.project.project import Project
from studies.entries import decode
from tests.db.seeded import seeded_database
from tests.models import save_tiny
from tests.pipelines.options import SMALL_DISTILLATION, set_options

IFEVAL_LINE = json.dumps(
    {"key": 1, "prompt": "Write in capitals.", "instruction_id_list": ["change_case:english_capital"], "kwargs": [{}]}
)
TINY = ["--device", "cpu", "--threads", "1"]


@pytest.mark.release
def test_three_implementations_give_the_same_divergence() -> None:
    pytest.importorskip("trl")
    sizes = ["--positions", "24", "--hidden", "16", "--vocabulary", "900", "--rounds", "1", "--head", "trained"]
    for result in divergence.main([*TINY, *sizes]).values():
        assert result["loss difference"] < 1e-5
        assert result["gradient difference"] < 1e-4


@pytest.fixture
def left_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The working folder gets nothing."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield
    assert not list((tmp_path / "here").iterdir())


@pytest.mark.usefixtures("left_clean")
def test_a_distillation_step_against_trl(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    model = str(save_tiny(tmp_path))
    result = opd_step.main([*TINY, "--model", model, "--steps", "1", "--rows", "4", "--max-new-tokens", "6"])
    assert 0 < result["tokens"] <= 24
    assert 0 < result["trl tokens"] <= 24


@pytest.mark.usefixtures("left_clean")
def test_mid_training_against_the_trainer(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    model = str(save_tiny(tmp_path))
    result = midtrain.main([*TINY, "--model", model, "--steps", "2", "--rows", "2", "--window", "32"])
    assert result["loss"] == pytest.approx(result["trainer loss"], abs=1e-3)


@pytest.mark.release
def test_what_a_callback_costs_a_training_that_is_too_short_for_it() -> None:
    result = forgetting_callback.main(["--steps", "2", "--rows", "2", "--pairs", "1"])
    assert result["readings"] == [0], "not even the clean model's fits"
    assert result["pairs"] == [result["cost"]]


@pytest.mark.release
@pytest.mark.browser
def test_the_pages_of_a_long_history(browser: object, tmp_path: Path) -> None:
    sizes = ["--cycles", "3", "--runs", "12", "--points", "500", "--rounds", "1", "--viewers", "2", "--minutes", "0.05"]
    # In a new process: a process can drive one browser at a time, and other tests keep theirs open.
    command = [sys.executable, "-m", "benchmarks.dashboard_pages", *sizes, "--record", str(tmp_path / "record.db")]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    *rows, last = process.stdout.splitlines()
    result = json.loads(last)
    cells = [row.split()[1] for row in rows if row.startswith("| ")]
    assert cells[2:] == list(dashboard_pages.PAGES)  # after the head and the line below it
    assert result["idle poll, ms"] > 0
    assert len(result["resident MB"]) == 3


def test_the_cost_of_the_record_and_of_reading_a_long_one() -> None:
    sizes = ["--cycles", "3", "--runs", "12", "--points", "500", "--rounds", "1", "--steps", "1"]
    assert all(value > 0 for value in tracker.main(sizes).values())


def test_reading_every_format_twice_gives_the_same_hash(tmp_path: Path) -> None:
    pytest.importorskip("docx")
    document_reading.fill(tmp_path / "docs", 300_000)
    first, second = (document_reading.measure_reading(tmp_path / "docs", ids) for ids in (True, False))
    assert first["hash"] == second["hash"]
    assert first["tokens"]
    document_reading.fuzz(tmp_path / "fuzz", 60)


def test_precisions_agree_where_the_engine_computes_in_float32(tmp_path: Path) -> None:
    """A small model stays in float32, so its engine agrees to rounding; autocast does not."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(IFEVAL_LINE)
    options = ["--ifeval", str(prompts), "--max-new-tokens", "16", "--engine", "transformers"]
    result = precision.main(["--model", str(save_tiny(tmp_path / "model")), *options])
    assert result["float32"] < 1e-4 < result["bfloat16 autocast, as trained"] < 0.1


@pytest.fixture
def project(tmp_path: Path) -> Path:
    seeded_database(tmp_path / ".recover" / "recover.db", name=str(tmp_path.resolve()), steps=3)
    (tmp_path / ".recover" / "name").write_text(str(tmp_path.resolve()), encoding="utf-8")
    return tmp_path


def test_a_cycle_s_file_has_all_models_with_their_items(project: Path) -> None:
    file = project / "cycle.json.gz"
    cycle_file.main([str(project), str(file), "--command", "recover cycle --docs ./docs"])

    stored = decode(file.read_bytes())
    assert stored["command"] == "recover cycle --docs ./docs"
    assert {"commit", "machine", "versions", "settings", "verdict"} <= stored.keys()
    assert {run["kind"] for run in stored["runs"]} >= {"midtrain", "distill"}
    curves = [run["curves"] for run in stored["runs"] if "curves" in run]
    assert curves
    assert all(len(curve["loss"]) == 3 for curve in curves), "one value a step"
    assert stored["models"].keys() == {"base", "midtrained", "recovered"}
    for model in stored["models"].values():
        for suite in model["measured"].values():
            for by_task in suite["outcomes"].values():
                for task, items in by_task.items():
                    metric = next(iter(suite["scores"][task].values()))
                    assert len(items["passed"]) / metric["n"] == metric["value"]
                    assert len(items["passed"]) + len(items["failed"]) == metric["n"]


def test_a_repair_s_file_has_what_was_made_of_the_last_fine_tune(project: Path) -> None:
    opened = Project.open(project)
    tracker, repaired = opened.tracker, []
    for name in ("first", "second"):
        run = tracker.start_run(opened.id, "distill", settings={"lora_rank": 0})
        fine_tune = tracker.checkpoint(opened.id, "external", project / name)
        repaired.append(tracker.checkpoint(opened.id, "recovered", f"{name} repaired", parent=fine_tune, run=run))
        tracker.finish_run(run, "done")
    described = cycle_file.describe_repair(opened)
    of_last = opened.reader.checkpoint(repaired[-1]).reference
    assert described["models"].keys() == {"base", "second", of_last}
    assert described["models"]["base"]["measured"]
    assert described["models"][of_last]["settings"] == {"lora_rank": 0}
    assert [run["kind"] for run in described["runs"]].count("distill") == 1


def test_a_file_has_the_base_s_result_on_the_items_of_the_other_models(project: Path) -> None:
    opened = Project.open(project)
    trained = opened.reader.checkpoint(opened.tracker.checkpoint(opened.id, "recovered", "repaired"))
    few, many, probe = (
        Result("closed_book", "knowledge", "q.jsonl", {"match": Metric.from_passes([True] * n)}, items, settings, 0.0)
        for keys, settings in (("abc", {}), ("defgh", {}), ("abcijk", {"part": "probe"}))
        for n, items in [(len(keys), [Item(key, "", "", True) for key in keys])]
    )
    for number, result in enumerate((few, many, probe)):
        store_results(opened, opened.clean, None, f"base {number}", [result])
    store_results(opened, trained, None, "trained", [few])
    described = cycle_file.measured(opened, {"base": opened.clean, "repaired": trained})
    assert described["base"]["knowledge"] == described["repaired"]["knowledge"]
    assert described["base"].keys() == {"knowledge"}, "no other suite is of both"


@pytest.mark.release
def test_a_cycle_is_judged_by_both_measurements(tmp_path: Path) -> None:
    of_midtraining = set_options("midtrain.max_steps=2", "midtrain.rows=4", "midtrain.generated_texts=24")
    small = [*of_midtraining, *SMALL_DISTILLATION, *set_options("distill.steps=2")]
    out = ["--out", str(tmp_path / "cycles.jsonl"), "--size", "quick", "--items", "12", "--large", "16"]
    [row] = gate_agreement.main([*out, "--cycles", "1", *small])
    assert (row["asked"], row["of"]) == (12, 12)
    assert row["agree"] == ((row["gate"] == "passed") == (row["large"] == "passed"))
