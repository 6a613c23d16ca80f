"""The benchmarks run, and the results they compare agree; times are not checked."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as all_benchmarks
from benchmarks import real
from benchmarks.quality import (
    answer_share,
    early_stopping,
    ended_loops,
    gate_agreement,
    in_context,
    kl_predicts_forgetting,
    listed_tokens,
    many_cycles,
    midtrain_settings,
    moves,
    precision,
    recipe_effects,
    recipes,
)
from benchmarks.speed import (
    adapter_memory,
    dashboard_pages,
    divergence,
    document_reading,
    drift_distances,
    forgetting_callback,
    midtrain,
    opd_step,
    status_command,
)
from pipelines.jobs.job import unfinished_jobs
from recovery.lab import BASE, make_world
from tests.models import save_tiny

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


def test_all_benchmarks_go_on_after_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = "--states 48 --width 8"
    monkeypatch.setattr(all_benchmarks, "ON_CPU", ["no_such_benchmark", f"drift_distances {sizes}"])
    assert all_benchmarks.main(["--out", str(tmp_path / "tables.md")]) == 1
    assert "Failed: python -m benchmarks.speed.no_such_benchmark" in capsys.readouterr().err
    _, _, second = (tmp_path / "tables.md").read_text().split("## python -m ")
    assert second.startswith(f"benchmarks.speed.drift_distances {sizes}")
    assert len(second.splitlines()) > 1  # what it printed
    monkeypatch.undo()
    if not torch.cuda.is_available():
        assert all_benchmarks.main(["--gpu"]) == 1
        assert "No GPU" in capsys.readouterr().err


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


def test_memory_with_and_without_a_second_model(tmp_path: Path) -> None:
    model = str(save_tiny(tmp_path))
    result = adapter_memory.main([*TINY, "--model", model, "--steps", "1", "--rows", "4", "--max-new-tokens", "6"])
    beside, within = (row["tokens/step"] for row in result.values())
    assert 0 < beside == within <= 24


def test_distances_between_states() -> None:
    assert drift_distances.main(["--states", "48", "--width", "8"])["seconds"] > 0


@pytest.mark.release
def test_kl_against_forgetting() -> None:
    measurements = kl_predicts_forgetting.main(["--steps", "4", "--items", "4", "--prompts", "64"])
    assert len(measurements) == 16
    assert sum(measurement.is_final for measurement in measurements) == 8
    assert all(kl > 0 for measurement in measurements for kl in measurement.kls.values())
    first, last = measurements[0], measurements[2]  # of one training
    assert last.kls["documents", "kl_from_clean"] > first.kls["documents", "kl_from_clean"]


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
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.dashboard_pages",
        *sizes,
        "--record",
        str(tmp_path / "record.db"),
    ]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    *rows, last = process.stdout.splitlines()
    result = json.loads(last)
    cells = [row.split()[1] for row in rows if row.startswith("| ")]
    assert cells[2:] == list(dashboard_pages.PAGES)  # after the head and the line below it
    assert result["idle poll, ms"] > 0
    assert len(result["resident MB"]) == 3


@pytest.mark.release
def test_cycles_with_and_without_answers() -> None:
    short = ["midtrain.max_steps=2", "distill.max_steps=1", "distill.prompts=20", "distill.max_new_tokens=60"]
    settings = [argument for setting in [*short, "distill.probe_every=0"] for argument in ("--set", setting)]
    rows = answer_share.main(["--shares", "0", "0.3", "--items", "3", *settings])
    assert [row["answers"] for row in rows] == [0.0, 0.3]
    assert rows[0]["clean"] == rows[1]["clean"]


@pytest.mark.release
def test_recipes_from_one_damaged_model_on_long_answers_alone(capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--set", "midtrain.epochs=0.1", "--set", "distill.prompts=64", "--set", "distill.max_new_tokens=48"]
    instructions = recipes.main(["--longer-than", "150", "--items", "4", "--steps", "1", "--only", "offpolicy", *short])
    shares = [f"{share} towards the clean weights" for share in (0.3, 0.5, 0.7)]
    assert list(instructions) == ["clean", "mid-trained", *shares, "offpolicy"]
    assert {metric.n for metric in instructions.values()} == {4}
    assert "4 items whose right answers have more than 150 tokens" in capsys.readouterr().out


@pytest.mark.release
def test_a_list_of_tokens_against_the_exact_divergence() -> None:
    short = ["--set", "midtrain.epochs=0.1", "--set", "distill.prompts=64", "--set", "distill.max_new_tokens=24"]
    shares, instructions = listed_tokens.main(["--steps", "1", "--rows", "4", "--items", "3", *short])
    assert shares.pop("exact") == 1
    for kind in ("listed", "of the student's"):
        few, some, many = (shares[f"{count} {kind}"] for count in listed_tokens.COUNTS)
        assert 0 < few < some < many < 1
    assert list(instructions) == ["mid-trained", "opd, exact", "opd, 20 listed"]


@pytest.mark.release
def test_settings_of_mid_training_side_by_side() -> None:
    short = "midtrain.max_steps=2 midtrain.mix.answers=0 midtrain.mix.texts=0"
    separate = f"{short} midtrain.cross_document_attention=false"
    rows = midtrain_settings.main(["--items", "3", "--try", short, "--try", separate])
    assert [row[1] for row in rows] == ["clean", short, separate]
    assert [row[-2] for row in rows] == ["", "2", "2"]


@pytest.mark.release
def test_arms_in_context_go_on_after_the_last_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ["midtrain.max_steps=1", "distill.max_steps=1", "distill.prompts=20", "distill.rows=6"]
    settings = [argument for setting in [*few, "distill.max_new_tokens=24"] for argument in ("--set", setting)]
    command = ["--base", str(BASE), "--out", str(tmp_path), "--world", "small", "--items", "4", "--kl-prompts", "2"]
    in_context.main([*command, *settings, "--only", "A", "--only", "G", "--only", "M"])
    results = tmp_path / "results.jsonl"
    rows = in_context.read_rows(results)
    assert [row["arm"] for row in rows] == ["A", "G", "M"]
    assert [row["pflops"] > 0 for row in rows] == [True, True, False]
    assert [(row["covered"][1], row["uncovered"][1]) for row in rows] == [(14, 13)] * 3
    file = tmp_path / "seed-1" / "training_questions.jsonl"
    trained = {json.loads(line)["question"] for line in file.read_text().splitlines()}
    world = make_world(9001, "small")
    assert len(trained) == 14
    assert not trained & {question.question for question in world.questions()}
    before = results.read_text()
    in_context.main([*command, *settings, "--only", "A", "--only", "G", "--only", "B"])
    assert results.read_text().startswith(before)
    assert in_context.read_rows(results)[-1]["pflops"] > rows[0]["pflops"]  # what came before is counted
    assert "| B A, 0.3 towards the base, then OPD" in capsys.readouterr().out

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(in_context, "run_job", interrupt)
        with pytest.raises(KeyboardInterrupt):
            in_context.main([*command, *settings, "--only", "L"])
    in_context.main([*command, *settings, "--only", "L"])  # G is promoted already, and the job is prepared
    assert in_context.read_rows(results)[-1]["arm"] == "L"
    assert not unfinished_jobs(tmp_path / "seed-1" / "G" / ".recover")


@pytest.mark.release
def test_each_of_many_cycles_starts_from_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    short = ["midtrain.max_steps=2", "distill.max_steps=1", "distill.prompts=20", "distill.max_new_tokens=60"]
    lenient = ["distill.probe_every=0", "gate.behaviour_margin=1", "gate.keep_knowledge=0", "gate.keep_earlier=0"]
    lenient += ["gate.keep_retention=0"]
    settings = [argument for setting in [*short, *lenient] for argument in ("--set", setting)]
    flags = ["--alone", "--earlier", "0.4", "--warm-start", "0.4", "--teacher", "router", "--loud"]
    first, second = many_cycles.main(["--cycles", "2", "--items", "3", *flags, *settings])
    assert first.promoted
    assert list(second.as_json()["earlier"]) == ["1"]
    assert second.distilled.warm_start == {"share": 0.4}
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3
    assert printed.err.count("the router is the clean model alone") == 1  # before any promotion
    assert "openings of earlier documents beside 20 prompts" in printed.err
    assert "base (and cycle:1/recovered for openings of earlier documents)" in printed.err


def test_the_gate_against_a_larger_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    def run(number: int, *rest: object) -> dict[str, object]:
        done.append(number)
        row = {"cycle": number, "settings": "defaults", "gate": "passed", "large": "passed", "agree": number != 1}
        return row | {"difference": 0.0, "large_difference": 0.0, "asked": 400, "of": 2000, "samples": 0, "seconds": 1}

    monkeypatch.setattr(gate_agreement, "run", run)
    monkeypatch.setattr(gate_agreement, "_clean_passes", lambda args: {})
    out = ["--out", str(tmp_path / "cycles.jsonl")]
    gate_agreement.main([*out, "--cycles", "2"])
    rows = gate_agreement.main([*out, "--cycles", "4"])
    assert done == [0, 1, 2, 3]  # the second command goes on with the third cycle
    assert gate_agreement.summary(rows).startswith(
        "3 of 4 agree (0.75, 95 %: 0.30 to 0.95), 0 decided the opposite; 4 passed "
    )


@pytest.mark.release
def test_a_cycle_is_judged_by_both_measurements(tmp_path: Path) -> None:
    settings = [
        "midtrain.max_steps=2", "midtrain.rows=4", "midtrain.generated_texts=24", "distill.steps=2", "distill.rows=4",
        "distill.prompts=24", "distill.max_new_tokens=48", "distill.probe_every=0", "gate.samples=1",
    ]  # fmt: skip
    small = [argument for setting in settings for argument in ("--set", setting)]
    out = ["--out", str(tmp_path / "cycles.jsonl"), "--size", "quick", "--items", "12", "--large", "16"]
    [row] = gate_agreement.main([*out, "--cycles", "1", *small])
    assert (row["asked"], row["of"]) == (12, 12)
    assert row["agree"] == ((row["gate"] == "passed") == (row["large"] == "passed"))


@pytest.mark.release
def test_early_stopping_saves_the_rest_of_the_budget() -> None:
    short = [
        "midtrain.max_steps=6",
        "distill.probe_items=9",
        "distill.rows=8",
        "distill.prompts=20",
        "distill.max_new_tokens=60",
    ]
    lenient = ["distill.probe_every=1", "distill.warm_start=off", "gate.behaviour_margin=2", "gate.keep_knowledge=0"]
    settings = [argument for setting in [*short, *lenient] for argument in ("--set", setting)]
    outcomes = early_stopping.main(["--alone", "--items", "6", "--budget", "3", "--whole", *settings])
    assert outcomes["probing"].distilled.steps <= 2  # 0, where the short mid-training did no damage
    assert outcomes["whole"].distilled.steps in (0, 3)
    assert outcomes["probing"].verdict.behaviour.n == outcomes["whole"].verdict.behaviour.n


def test_status_of_a_project_with_a_history() -> None:
    pytest.importorskip("playwright")
    sizes = ["--cycles", "3", "--runs", "12", "--points", "500", "--rounds", "1"]
    assert status_command.main(sizes)["processor, s"] > 0


def test_reading_every_format_twice_gives_the_same_hash(tmp_path: Path) -> None:
    pytest.importorskip("docx")
    document_reading.fill(tmp_path / "docs", 300_000)
    first, second = (document_reading.measure_reading(tmp_path / "docs", ids) for ids in (True, False))
    assert first["hash"] == second["hash"]
    assert first["tokens"]
    document_reading.fuzz(tmp_path / "fuzz", 60)


@pytest.mark.release
def test_the_speed_of_a_model_against_its_peers(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    options = ["--engine", "transformers", "--steps", "1", "--only", "rollouts,midtrain,opd"]
    ratios = real.main(["--model", str(save_tiny(tmp_path)), *options])
    assert set(ratios) == {"rollouts", "midtrain", "opd"}
    assert all(ratio > 0 for ratio in ratios.values())


def test_ended_loops_against_full_replies(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(IFEVAL_LINE)
    options = ["--ifeval", str(prompts), "--max-new-tokens", "200", "--engine", "transformers"]
    result = ended_loops.main(["--model", str(save_tiny(tmp_path / "model")), *options])
    assert result["verdicts"] <= 1
    assert result["lost"] + result["gained"] <= 1


def test_precisions_agree_where_the_engine_computes_in_float32(tmp_path: Path) -> None:
    """A small model stays in float32, so its engine agrees to rounding; autocast does not."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(IFEVAL_LINE)
    options = ["--ifeval", str(prompts), "--max-new-tokens", "16", "--engine", "transformers"]
    result = precision.main(["--model", str(save_tiny(tmp_path / "model")), *options])
    assert result["float32"] < 1e-4 < result["bfloat16 autocast, as trained"] < 0.1


MOVES = ("clean", "documents alone", "0.5 towards the base", "GKD beside the documents", "30 % of the base's answers")


@pytest.mark.release
def test_moves_from_one_damaged_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    for folder in ("ifeval", "wikitext2"):
        (data / folder).mkdir(parents=True)
    (data / "ifeval" / "input_data.jsonl").write_text(IFEVAL_LINE)
    (data / "wikitext2" / "wiki.test.raw").write_text("The river rises in the hills and reaches the sea. " * 200)
    settings = ("midtrain.max_steps=1", "distill.steps=2", "distill.rows=4", "distill.prompts=32")
    options = ["--base", str(BASE), "--data", str(data), "--out", str(tmp_path / "out"), "--tasks", ""]
    for move in MOVES:
        moves.main([*options, "--only", move, *(part for setting in settings for part in ("--set", setting))])
    rows = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [row["model"] for row in rows] == list(MOVES)
    cost = {row["model"]: row["pflops"] for row in rows}
    assert cost["clean"] == cost["0.5 towards the base"] == 0
    assert len({row["perplexity"] for row in rows}) == len(MOVES)  # five different models
    moves.main(["--out", str(tmp_path / "out"), "--table"])
    assert "GKD beside the documents" in capsys.readouterr().out


@pytest.mark.release
def test_the_effects_of_recipes_go_on_after_the_last_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--base", str(BASE), "--out", str(tmp_path), "--engine", "transformers"]
    options += ["--steps", "2", "--rows", "4", "--items", "6"]
    recipe_effects.main([*options, "--only", "base", "--only", "sft"])
    rows = recipe_effects.main([*options, "--only", "base", "--only", "sft", "--only", "deliberative-sft"])
    assert [row["recipe"] for row in rows] == ["base", "sft", "deliberative-sft"]
    assert [row["pflops"] > 0 for row in rows] == [False, True, True]
    assert len({row["path"] for row in rows}) == 3
    assert all(row["sums"][1] == row["short"][1] == 6 for row in rows)
    recipe_effects.main(["--out", str(tmp_path), "--table"])
    assert "deliberative-sft" in capsys.readouterr().out
