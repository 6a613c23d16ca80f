"""What is read beside the documents: the clean base's own words, by default, and judged by itself."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from pipelines.training.stages import Stages

from pipelines.cli import main
from pipelines.job import Job
from pipelines.prepare_job import Request, teachers_of
from pipelines.project.project import Project
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schema import Settings
from pipelines.synthetic.prefixes import EARLIER_DOMAIN
from recovery.lab import BASE
from recovery.models.students import load_student
from recovery.samples import Batch, Sample
from recovery.teachers import FrozenTeacher, Teacher
from tests.models import save_tiny

SMALL = (
    "midtrain.max_steps=2",
    "midtrain.rows=4",
    "midtrain.generated_texts=24",
    "distill.prompts=24",
    "distill.max_new_tokens=48",
)


ALONE = ("--set", "midtrain.mix.answers=0", "--set", "midtrain.mix.texts=0")


def midtrain(docs: Path, *more: str) -> Result:
    settings = [word for each in SMALL for word in ("--set", each)]
    return CliRunner().invoke(main, ["midtrain", "--docs", str(docs), *settings, *more, "--json"])


def cost(ran: Result) -> float:
    """FLOPs of the first step, in which a teacher's reading counts."""
    assert ran.exit_code == 0, ran.stderr
    project = Project.open_existing(None)
    (first, *_) = project.reader.points(json.loads(ran.stdout)["run"], names=["flops"])
    return first.value


@pytest.mark.parametrize("beside", ["midtrain.mix.texts=0", "midtrain.mix.answers=0"])
def test_what_the_base_wrote_is_judged_by_the_base(docs: Path, beside: str) -> None:
    asked, labels, adapter = (
        midtrain(docs, "--set", beside, "--set", more)
        for more in ("midtrain.soft_labels=true", "midtrain.soft_labels=false", "lora_rank=4")
    )
    assert cost(asked) > 1.05 * cost(labels)
    assert cost(adapter) > 1.05 * cost(labels)  # the weights under the adapter are the base
    said = "30% replay" if "texts" in beside else "1 of 4 rows from what the clean base wrote"
    assert said in asked.stderr


def test_documents_alone_have_no_teacher(docs: Path) -> None:
    assert cost(midtrain(docs, *ALONE)) == cost(midtrain(docs, *ALONE, "--set", "midtrain.soft_labels=false"))


def test_room_is_asked_for_a_teacher_that_will_be_there() -> None:
    usual, reading = defaults_for(SMALL_MODEL_PARAMETERS), Request("midtrain", docs=Path("docs"))

    def beside(request: Request, settings: Settings, promoted: str | None = None) -> tuple[list[str], list[str]]:
        return teachers_of(request, settings, "clean", promoted)

    assert beside(reading, usual) == (["clean"], [])
    assert beside(reading, usual, "last") == (["clean", "last"], [])
    for less in ({"soft_labels": False}, {"mix": {"answers": 0.0, "texts": 0.0, "earlier": 0.0}}):
        settings = apply_overrides(usual, {"midtrain": less})
        assert beside(reading, settings, "last") == ([], [])
        assert beside(Request("distill"), settings) == ([], ["clean"])
    alone = apply_overrides(usual, {"midtrain": {"mix": {"answers": 0.0, "texts": 0.0}}})
    assert (beside(reading, alone), beside(reading, alone, "last")) == (([], []), (["last"], []))
    assert beside(reading, apply_overrides(alone, {"midtrain": {"mix": {"answers": "auto"}}})) == (["clean"], [])
    router = Request("cycle", docs=Path("docs"), teacher="router")
    assert beside(router, usual, "last") == (["clean", "last"], ["clean", "last"])


def test_each_cycle_reads_other_words_of_the_base_and_distils_on_yet_others(tmp_path: Path) -> None:
    project = Project.open(tmp_path)
    few = {"distill": {"prompts": 16, "max_new_tokens": 48}, "midtrain": {"generated_texts": 16}}
    settings = apply_overrides(defaults_for(SMALL_MODEL_PARAMETERS), few)

    def words(number: int) -> tuple[set[str], set[str], set[str]]:
        stages = Stages(project, settings, Job("cycle", {}, 0), None, number)
        asked = {str(row.prompt) for row in stages._answers}
        return asked, set(stages.prompts_to_distil()), {text for own in stages._recollections() for text in own.texts}

    first, second = words(1), words(2)
    assert words(1) == first  # resumed
    assert not first[0] & first[1]
    assert not (first[0] | first[1]) & (second[0] | second[1])
    assert not first[2] & second[2]


def test_a_base_that_cannot_write_goes_without_what_is_only_usual(docs: Path, tmp_path: Path) -> None:
    base = ("--base", str(save_tiny(tmp_path / "base")))
    usual = midtrain(docs, *base)
    assert usual.exit_code == 0, usual.stderr
    assert usual.stderr.count("going on without: The base ") == 2
    assert "30% replay" not in usual.stderr
    for asked in ("answers", "texts"):
        refused = midtrain(docs, *base, "--set", f"midtrain.mix.{asked}=0.2")
        assert refused.exit_code == 1
        assert f"midtrain.mix.{asked}=0" in refused.stderr


SHORT = ("distill.max_steps=1", "distill.rows=4", "distill.probe_every=0")
LENIENT = ("midtrain.learning_rate=5e-3", "gate.behaviour_margin=0.99", "gate.keep_knowledge=0.01")


def run(command: str, *words: str) -> Result:
    settings = [word for each in (*SMALL, *SHORT) for word in ("--set", each)]
    ran = CliRunner().invoke(main, [command, *settings, *words, "--limit", "4", "--json"])
    assert ran.exit_code in (0, 3), ran.stderr
    return ran


def a_promoted_cycle(docs: Path, rank: int) -> None:
    lenient = [word for each in (*LENIENT, f"lora_rank={rank}") for word in ("--set", each)]
    ran = run("cycle", "--docs", str(docs), *lenient, *ALONE, "--warm-start", "off")
    assert json.loads(ran.stdout)["promoted"], ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 4])
def test_earlier_documents_are_taught_as_the_last_promoted_model_knows_them(docs: Path, rank: int) -> None:
    """At the first step the student is that model still: a row that it is asked about has nothing to teach."""
    a_promoted_cycle(docs, rank)

    def first_loss(rows: int, *more: str) -> float:
        taught = midtrain(docs, *more, "--set", f"lora_rank={rank}", "--set", f"midtrain.rows={rows}")
        assert taught.exit_code == 0, taught.stderr
        (first, *_) = Project.open_existing(None).reader.points(json.loads(taught.stdout)["run"], names=["loss"])
        return first.value

    of_new_rows = first_loss(3, "--mix", "documents")
    one_asked = first_loss(4, "--mix", "earlier=0.25")
    assert one_asked == pytest.approx(of_new_rows * 3 / 4, rel=0.02)
    assert first_loss(4, "--mix", "earlier=0.25", "--set", "midtrain.soft_labels=false") > 1.1 * one_asked
    assert first_loss(4, "--mix", "earlier=0.5") == pytest.approx(one_asked, rel=0.2)  # one asked, one by what it says


@pytest.mark.slow
def test_each_is_asked_about_its_own(docs: Path) -> None:
    """The clean base about what it wrote, the last promoted model about what it learned."""
    a_promoted_cycle(docs, 0)
    project = Project.open_existing(None)
    settings = defaults_for(SMALL_MODEL_PARAMETERS)
    stages, student = Stages(project, settings, Job("midtrain", {}, 0), None, 0), load_student(str(BASE))
    tokens = student.chat.prompt([{"role": "user", "content": "In which town is Anna at home?"}])
    row = Sample(tokens, [False] + [True] * (len(tokens) - 1), soft_labels=True)
    rows = [row, replace(row, domain=EARLIER_DOMAIN)]

    def say(teacher: Teacher | None, about: list[Sample]) -> torch.Tensor:
        assert teacher is not None
        return teacher.distribution(Batch.collate(about, 0)).logprobs(slice(None))

    clean, promoted = (say(FrozenTeacher(c.path), [row]) for c in (project.clean, project.current))
    assert float((clean - promoted).abs().max()) > 0.1
    both = torch.cat([clean, promoted])
    torch.testing.assert_close(say(stages._judging(student, True, project.current), rows), both)
    torch.testing.assert_close(say(stages._judging(student, True, None), rows[:1]), clean)
    torch.testing.assert_close(say(stages._judging(student, False, project.current), rows[1:]), promoted)
    assert stages._judging(student, False, None) is None
    by_tokens = replace(stages, settings=apply_overrides(settings, {"midtrain": {"soft_labels": False}}))
    assert by_tokens._judging(student, True, project.current) is None


@pytest.mark.slow
def test_the_usual_way_back_is_for_what_read_documents_alone(docs: Path) -> None:
    ways = ("0", "warm start: 0.3 of the way back"), ("0.3", "no way back in weights")
    for number, (texts, said) in enumerate(ways, 1):
        taught = midtrain(docs, "--set", "midtrain.mix.answers=0", "--set", f"midtrain.mix.texts={texts}")
        assert taught.exit_code == 0, taught.stderr
        for student in ([], ["--student", f"cycle:{number}"]):  # of what was distilled, too, its mid-training decides
            assert said in run("distill", *student).stderr


@pytest.mark.slow
def test_the_usual_way_back_to_what_earlier_cycles_taught_is_short(docs: Path) -> None:
    a_promoted_cycle(docs, 0)
    taught = midtrain(docs, "--set", "midtrain.mix.answers=0")
    assert taught.exit_code == 0, taught.stderr
    assert "warm start: 0.2 of the way back" in run("distill").stderr
    again = run("distill", "--student", "cycle:2")  # and is taken once
    assert "no way back in weights" in again.stderr
