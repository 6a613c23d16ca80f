from pathlib import Path
from typing import Any

import pytest

from recovery.lab import make_world
from tests.e2e.command_line import interrupt_at, recover
from tests.interrupted import SMALL, Results, interrupt, read_results
from tests.pipelines.options import set_options

FLOAT32 = SMALL | {"bf16": "false", "midtrain.mix.answers": 0, "midtrain.mix.texts": 0, "distill.probe_every": 0}


def cycle(processes: int) -> list[str]:
    settings = set_options(*(f"{name}={value}" for name, value in FLOAT32.items()))
    flags = ["--docs", "docs", "--questions", "questions.jsonl", "--limit", "12"]
    return ["cycle", *flags, *settings, "--processes", str(processes)]


def losses(results: Results) -> dict[tuple[int, int], float]:
    """By run and step."""
    return {(run, step): value for run, step, name, value in results.rows["points"] if name == "loss"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Results]:
    folder = tmp_path_factory.mktemp("alone")
    make_world(4241, size="quick").write(folder)
    completed = recover(folder, *cycle(1)).ended(0, 3)
    return completed.data, read_results(folder)


@pytest.mark.slow
def test_the_number_of_processes_changes_neither_losses_nor_verdict(
    tmp_path: Path, alone: tuple[dict[str, Any], Results]
) -> None:
    make_world(4241, size="quick").write(tmp_path)
    code, stderr = interrupt_at("  step 3/5", tmp_path, *cycle(2))
    assert code == 130, stderr
    completed = recover(tmp_path, "resume", "--processes", 1)
    assert "Going on at step" in completed.stderr
    assert completed.exit_code in (0, 3), completed.stderr
    data, results = alone
    assert losses(read_results(tmp_path)) == pytest.approx(losses(results), abs=1e-4)
    assert len(losses(results)) == FLOAT32["midtrain.max_steps"] + FLOAT32["distill.steps"]
    for key in ("outcome", "passed"):
        assert completed.data["verdict"][key] == data["verdict"][key]
    assert completed.data["promoted"] == data["promoted"]


@pytest.mark.release
def test_a_cycle_whose_processes_were_lost_and_resumed_leaves_what_an_unbroken_one_leaves() -> None:
    """Two moments; `python -m tests.interrupted --processes 2 --kills 5` tries five."""
    assert interrupt(kills=2, seed=2, processes=2) == []


@pytest.mark.slow
def test_a_cycle_that_was_killed_and_resumed_leaves_what_an_unbroken_one_leaves() -> None:
    """One moment, in the distillation of a first cycle; `python -m tests.interrupted` tries twenty in a second one."""
    assert interrupt(kills=1, seed=24, earlier_cycle=False) == []
