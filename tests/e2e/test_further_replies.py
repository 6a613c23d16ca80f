from pathlib import Path
from typing import Any

import pytest

from db.verdict_lines import measure_lines
from recovery.lab import make_world
from tests.e2e.command_line import Completed, recover
from tests.pipelines.options import set_options

pytestmark = pytest.mark.release

UNCHANGED = set_options(  # the model stays as it is: 12 prompts do not show that
    "midtrain.max_steps=1",
    "midtrain.rows=2",
    "midtrain.learning_rate=0",
    "midtrain.mix.answers=0",
    "midtrain.mix.texts=0",
    "distill.steps=1",
    "distill.rows=2",
    "distill.learning_rate=0",
    "distill.max_new_tokens=16",
    "distill.prompts=12",
    "distill.probe_every=0",
    "distill.warm_start=off",
    "gate.samples=2",
    "gate.keep_knowledge=0",
    "gate.keep_retention=0",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("few")
    make_world(77, size="quick").write(folder / "corpus")
    command = ["cycle", "--docs", folder / "corpus/docs", "--limit", 12, *UNCHANGED]
    again = ["distill", "--student", "cycle:1/midtrained", "--teacher", "base", "--limit", 12, *UNCHANGED]
    return {
        "cycle": recover(folder, *command),
        "again": recover(folder, *again),
        "folder": folder,
    }


def test_it_samples_further_replies_of_both_models_before_it_is_inconclusive(results: dict[str, Any]) -> None:
    cycle: Completed = results["cycle"]
    assert cycle.exit_code == 3, cycle.stderr
    for number in (1, 2):
        assert f"sampling reply {number} of at most 2 to each prompt, at temperature 0.7" in cycle.stderr
    verdict = cycle.data["verdict"]
    assert (verdict["outcome"], verdict["behaviour"]["samples"], verdict["behaviour"]["n"]) == ("inconclusive", 2, 12)
    assert "12 prompts, with the greedy and 2 sampled replies to each" in measure_lines(verdict)[0].details
    shown = recover(results["folder"], "show", "base").data["evaluations"]
    sampled = [one["task"] for one in shown if one["suite"] == "samples"]
    assert sampled == ["sample:1", "sample:2"]


def test_stored_replies_of_the_clean_model_are_reused(results: dict[str, Any]) -> None:
    again: Completed = results["again"]
    assert again.exit_code == 3, again.stderr
    assert again.stderr.count("Reusing the stored results of the clean model") == 3  # greedy and two samples
    assert Path(results["folder"], ".recover").is_dir()
