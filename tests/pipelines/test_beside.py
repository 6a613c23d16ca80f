"""What is read beside the documents: the clean base's own words, by default, and judged by itself."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipelines.beginning import Wishes, teachers_of
from pipelines.cli import main
from pipelines.project import Project
from pipelines.settings import SMALL as SMALL_MODELS
from pipelines.settings import defaults_for, merged
from tests.models import save_tiny

SMALL = (
    "midtrain.max_steps=2",
    "midtrain.rows=4",
    "midtrain.recollections=24",
    "distill.prompts=24",
    "distill.max_new_tokens=48",
)


def midtrain(docs: Path, *more: str) -> Result:
    settings = [word for each in SMALL for word in ("--set", each)]
    return CliRunner().invoke(main, ["midtrain", "--docs", str(docs), *settings, *more, "--json"])


def cost(ran: Result) -> float:
    """FLOPs of the first step, in which a teacher's reading counts."""
    assert ran.exit_code == 0, ran.stderr
    project = Project.begun(None)
    (first, *_) = project.reader.points(json.loads(ran.stdout)["run"], names=["flops"])
    return first.value


@pytest.mark.parametrize("beside", [("--recollect", "0"), ("--replay", "0")])
def test_what_the_base_wrote_is_judged_by_the_base(docs: Path, beside: tuple[str, str]) -> None:
    asked, labels, adapter = (
        midtrain(docs, *beside, "--set", more) for more in ("midtrain.soft=true", "midtrain.soft=false", "lora_rank=4")
    )
    assert cost(asked) > 1.05 * cost(labels)
    assert cost(adapter) > 1.05 * cost(labels)  # the weights under the adapter are the base
    said = "30% replay" if "--recollect" in beside else "1 of 4 rows from what the clean base wrote"
    assert said in asked.stderr


def test_documents_alone_have_no_teacher(docs: Path) -> None:
    alone = ("--replay", "0", "--recollect", "0")
    assert cost(midtrain(docs, *alone)) == cost(midtrain(docs, *alone, "--set", "midtrain.soft=false"))


def test_room_is_asked_for_a_teacher_that_will_be_there() -> None:
    usual, reading = defaults_for(SMALL_MODELS), Wishes("midtrain")
    assert teachers_of(reading, usual) == 1
    for less in ({"soft": False}, {"replay": "0", "recollect": 0.0}):
        settings = merged(usual, {"midtrain": less})
        assert (teachers_of(reading, settings), teachers_of(Wishes("distill"), settings)) == (0, 1)
    assert teachers_of(reading, merged(usual, {"midtrain": {"replay": "auto", "recollect": 0.0}})) == 1
    assert teachers_of(Wishes("cycle", teacher="router"), usual) == 2


def test_a_base_that_cannot_write_goes_without_what_is_only_usual(docs: Path, tmp_path: Path) -> None:
    base = ("--base", str(save_tiny(tmp_path / "base")))
    usual = midtrain(docs, *base)
    assert usual.exit_code == 0, usual.stderr
    assert usual.stderr.count("going on without: the base ") == 2
    assert "30% replay" not in usual.stderr
    for asked in (("--replay", "0.2"), ("--recollect", "0.2")):
        refused = midtrain(docs, *base, *asked)
        assert refused.exit_code == 1
        assert f"{asked[0]} 0" in refused.stderr


@pytest.mark.slow
def test_the_usual_way_back_is_for_what_read_documents_alone(docs: Path) -> None:
    short = [
        "--set",
        "distill.max_steps=1",
        "--set",
        "distill.rows=4",
        "--set",
        "distill.probe_every=0",
        "--limit",
        "3",
    ]
    short += [word for each in SMALL for word in ("--set", each)]
    ways = (("0", "0"), "warm start: 0.3 of the way back"), (("0", "0.3"), "no way back in weights")
    for number, (shares, said) in enumerate(ways, 1):
        taught = midtrain(docs, "--replay", shares[0], "--recollect", shares[1])
        assert taught.exit_code == 0, taught.stderr
        for student in ([], ["--student", f"cycle:{number}"]):  # of what was distilled, too, its mid-training decides
            ran = CliRunner().invoke(main, ["distill", *student, *short, "--json"])
            assert ran.exit_code in (0, 3), ran.stderr
            assert said in ran.stderr
