"""Small mid-trainings and distillations of the built-in model, run in this process through the command line."""

import json
from pathlib import Path

from click.testing import Result

from db.tables import Run
from pipelines.project.project import Project
from tests.pipelines.options import data_of, recover, set_options

SMALL_MIDTRAIN = (
    "midtrain.max_steps=2",
    "midtrain.rows=4",
    "midtrain.generated_texts=24",
    "distill.prompts=24",
    "distill.max_new_tokens=48",
)
SMALL_DISTILL = ("distill.max_steps=1", "distill.rows=4", "distill.probe_every=0")
LENIENT_GATE = ("gate.behaviour_margin=0.99", "gate.keep_knowledge=0.01", "gate.keep_retention=0")
DOCUMENTS_ONLY = set_options("midtrain.mix.answers=0", "midtrain.mix.texts=0")


def midtrain(docs: Path, *more: str) -> Result:
    command = ["midtrain", "--docs", str(docs), *set_options(*SMALL_MIDTRAIN), *more, "--json"]
    return recover(*command)


def distill(*more: str) -> Result:
    return _with_verdict("distill", *more)


def promote_a_cycle(docs: Path, rank: int = 0) -> None:
    """Run a cycle that reads documents only, and passes the gate whatever it loses."""
    settings = set_options("midtrain.learning_rate=5e-3", f"lora_rank={rank}", *LENIENT_GATE)
    completed = _with_verdict("cycle", "--docs", str(docs), *settings, *DOCUMENTS_ONLY, "--warm-start", "off")
    assert json.loads(completed.stdout)["promoted"], completed.stderr


def recorded_run(completed: Result) -> Run:
    """The run of a mid-training in the project of the working directory."""
    return Project.open_existing(None).run(data_of(completed)["run"])


def first_value(completed: Result, metric: str) -> float:
    """The metric at the first step of a mid-training."""
    run = data_of(completed)["run"]
    (first, *_) = Project.open_existing(None).reader.points(run, names=[metric])
    return first.value


def _with_verdict(command: str, *more: str) -> Result:
    settings = set_options(*SMALL_MIDTRAIN, *SMALL_DISTILL)
    completed = recover(command, *settings, *more, "--limit", "4", "--json")
    assert completed.exit_code in (0, 3), completed.stderr
    return completed
