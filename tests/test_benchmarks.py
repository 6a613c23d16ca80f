"""The benchmarks run, and what they compare agrees. Nothing is said about time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.quality import (
    answer_share,
    early_stopping,
    kl_predicts_forgetting,
    many_cycles,
    midtrain_settings,
    recipes,
)
from benchmarks.speed import (
    adapter_memory,
    dashboard_pages,
    divergence,
    document_reading,
    drift_distances,
    midtrain,
    opd_step,
    status_command,
)
from tests.models import save_tiny

TINY = ["--device", "cpu", "--threads", "1"]


@pytest.mark.slow
def test_three_ways_to_the_same_divergence() -> None:
    pytest.importorskip("trl")
    sizes = ["--positions", "24", "--hidden", "16", "--vocabulary", "900", "--rounds", "1", "--head", "trained"]
    for result in divergence.main([*TINY, *sizes]).values():
        assert result["loss apart"] < 1e-5
        assert result["gradient apart"] < 1e-4


def test_a_step_of_distillation_beside_trl(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    model = str(save_tiny(tmp_path))
    result = opd_step.main([*TINY, "--model", model, "--steps", "1", "--rows", "4", "--max-new-tokens", "6"])
    assert 0 < result["tokens"] <= 24
    assert 0 < result["their tokens"] <= 24


def test_mid_training_beside_the_trainer(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    model = str(save_tiny(tmp_path))
    result = midtrain.main([*TINY, "--model", model, "--steps", "2", "--rows", "2", "--window", "32"])
    assert result["loss"] == pytest.approx(result["their loss"], abs=1e-3)


def test_memory_with_and_without_a_second_copy(tmp_path: Path) -> None:
    model = str(save_tiny(tmp_path))
    result = adapter_memory.main([*TINY, "--model", model, "--steps", "1", "--rows", "4", "--max-new-tokens", "6"])
    assert [each["tokens/step"] for each in result.values()] == [24, 24]


def test_distances_between_states() -> None:
    assert drift_distances.main(["--states", "48", "--width", "8"])["seconds"] > 0


@pytest.mark.slow
def test_drift_beside_forgetting() -> None:
    looks = kl_predicts_forgetting.main(["--steps", "4", "--items", "4", "--prompts", "64"])
    assert len(looks) == 16
    assert sum(not look.on_the_way for look in looks) == 8
    assert all(kl > 0 for look in looks for kl in look.kls.values())
    first, last = looks[0], looks[2]  # of one reading
    assert last.kls["documents", "kl_from_clean"] > first.kls["documents", "kl_from_clean"]


@pytest.mark.browser
def test_the_pages_of_a_long_history(browser: object, tmp_path: Path) -> None:
    sizes = ["--cycles", "3", "--runs", "12", "--points", "500", "--rounds", "1", "--viewers", "2", "--minutes", "0.05"]
    # In a process of its own: one process can drive but one browser at a time, and other tests keep theirs open.
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.dashboard_pages",
        *sizes,
        "--record",
        str(tmp_path / "record.db"),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    *rows, last = done.stdout.splitlines()
    result = json.loads(last)
    cells = [row.split()[1] for row in rows if row.startswith("| ")]
    assert cells[2:] == list(dashboard_pages.PAGES)  # after the head and its line
    assert result["idle look, ms"] > 0
    assert len(result["resident MB"]) == 3


@pytest.mark.slow
def test_cycles_with_and_without_replay() -> None:
    short = ["midtrain.max_steps=2", "distill.max_steps=1", "distill.prompts=20", "distill.max_new_tokens=60"]
    settings = [word for each in [*short, "distill.probe_every=0"] for word in ("--set", each)]
    rows = answer_share.main(["--shares", "0", "0.3", "--items", "3", *settings])
    assert [row["replay"] for row in rows] == [0.0, 0.3]
    assert rows[0]["clean"] == rows[1]["clean"]


@pytest.mark.slow
def test_recipes_from_one_damaged_model_on_long_answers_alone(capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--set", "midtrain.epochs=0.1", "--set", "distill.prompts=64", "--set", "distill.max_new_tokens=48"]
    followed = recipes.main(["--longer-than", "150", "--items", "4", "--steps", "1", "--only", "offpolicy", *short])
    shares = [f"{share} of the way back in weights" for share in (0.3, 0.5, 0.7)]
    assert list(followed) == ["clean", "mid-trained", *shares, "offpolicy"]
    assert {each.n for each in followed.values()} == {4}
    assert "4 items whose right answers have more than 150 tokens" in capsys.readouterr().out


@pytest.mark.slow
def test_settings_of_mid_training_side_by_side() -> None:
    short = "midtrain.max_steps=2 midtrain.mix.answers=0 midtrain.mix.texts=0"
    rows = midtrain_settings.main(
        ["--items", "3", "--try", short, "--try", f"{short} midtrain.cross_document_attention=false"]
    )
    assert [row[1] for row in rows] == ["clean", short, f"{short} midtrain.cross_document_attention=false"]
    assert [row[-2] for row in rows] == ["", "2", "2"]


@pytest.mark.slow
def test_each_of_many_cycles_goes_on_from_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    short = ["midtrain.max_steps=2", "distill.max_steps=1", "distill.prompts=20", "distill.max_new_tokens=60"]
    lenient = ["distill.probe_every=0", "gate.behaviour_margin=1", "gate.keep_knowledge=0", "gate.keep_earlier=0"]
    settings = [word for each in [*short, *lenient] for word in ("--set", each)]
    ways = ["--alone", "--earlier", "0.4", "--warm-start", "0.4", "--teacher", "router", "--loud"]
    first, second = many_cycles.main(["--cycles", "2", "--items", "3", *ways, *settings])
    assert first.promoted
    assert list(second.as_json()["earlier"]) == ["1"]
    assert second.distilled.warm == {"share": 0.4}
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3
    assert printed.err.count("the router is the clean model alone") == 1  # before any promotion
    assert "openings of earlier documents beside 20 prompts" in printed.err
    assert "base (and cycle:1/recovered for openings of earlier documents)" in printed.err


@pytest.mark.slow
def test_a_look_that_holds_twice_saves_the_rest_of_the_budget() -> None:
    short = [
        "midtrain.max_steps=6",
        "distill.probe_items=9",
        "distill.rows=8",
        "distill.prompts=20",
        "distill.max_new_tokens=60",
    ]
    lenient = ["distill.probe_every=1", "distill.warm_start=off", "gate.behaviour_margin=2", "gate.keep_knowledge=0"]
    settings = [word for each in [*short, *lenient] for word in ("--set", each)]
    found = early_stopping.main(["--alone", "--items", "6", "--budget", "3", "--whole", *settings])
    assert found["looking"].distilled.steps <= 2  # none, where so little reading left nothing to bring back
    assert found["whole"].distilled.steps in (0, 3)
    assert found["looking"].verdict.behaviour.n == found["whole"].verdict.behaviour.n


def test_a_project_with_a_history_says_where_it_stands() -> None:
    pytest.importorskip("playwright")
    sizes = ["--cycles", "3", "--runs", "12", "--points", "500", "--rounds", "1"]
    assert status_command.main(sizes)["processor, s"] > 0


def test_a_folder_with_every_format_is_read_alike_twice(tmp_path: Path) -> None:
    pytest.importorskip("docx")
    document_reading.fill(tmp_path / "docs", 300_000)
    first, second = (document_reading.measured(tmp_path / "docs", ids) for ids in (True, False))
    assert first["hash"] == second["hash"]
    assert first["tokens"]
    document_reading.fuzz(tmp_path / "fuzz", 60)
