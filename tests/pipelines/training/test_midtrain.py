"""Mid-training: what is read beside the documents, which teacher gives the soft labels, and what is recorded."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result

from db.tables import Checkpoint
from evals.subject import Subject
from pipelines.jobs.job import Job
from pipelines.project.project import Project
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.synthetic.prefixes import EARLIER_DOMAIN
from pipelines.training import base_model_outputs as base_outputs
from pipelines.training.base_model_outputs import BaseOutputs
from pipelines.training.mix import TrainingMix
from pipelines.training.stage_context import Stage
from pipelines.training.stage_teachers import Teachers
from recovery.lab import BASE
from recovery.models.students import load_chat, load_student
from recovery.samples import Batch, Sample
from recovery.teachers import FrozenTeacher, Teacher
from tests.evals.fakes import fake_subject
from tests.models import save_tiny
from tests.pipelines.options import set_options
from tests.pipelines.synthetic.test_paraphrased_corpus import backwards
from tests.pipelines.training.commands import (
    DOCUMENTS_ONLY,
    data_of,
    first_value,
    midtrain,
    promote_a_cycle,
    recorded_run,
)


def one_step(docs: Path, *assignments: str) -> Result:
    """One step of 16 rows on the documents only, whatever the assignments do not add."""
    settings = set_options("midtrain.max_steps=1", "midtrain.rows=16", *assignments)
    return midtrain(docs, "--mix", "documents", *settings)


def test_without_cross_document_attention_a_documents_first_token_is_no_target(docs: Path) -> None:
    joined, separate = (one_step(docs, f"midtrain.cross_document_attention={value}") for value in ("true", "false"))
    settings = recorded_run(separate).settings["midtrain"]
    tokens = [data_of(completed)["tokens"] for completed in (joined, separate)]
    assert tokens[0] <= settings["window"] * settings["rows"]
    assert tokens[0] * 0.9 < tokens[1] < tokens[0]
    invalid = one_step(docs, "midtrain.cross_document_attention=maybe")
    assert "midtrain.cross_document_attention must be true or false" in invalid.stderr


def test_the_lab_base_cannot_paraphrase_and_nothing_is_started(docs: Path, tmp_path: Path) -> None:
    completed = one_step(docs, "midtrain.mix.paraphrases=1")
    assert completed.exit_code == 1
    assert "none of its first 16 paraphrases passed" in completed.stdout
    assert "start another project with a more capable --base" in completed.stderr
    project = Project.open_existing(None)
    assert list(project.reader.runs(project.id)) == list(project.reader.cycles(project.id)) == []
    assert not list((tmp_path / ".recover" / "jobs").glob("*"))


def test_paraphrases_are_read_beside_the_documents_and_counted(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def capable_base(path: str, engine: str) -> Iterator[Subject]:
        yield fake_subject(backwards)

    def no_base(path: str, engine: str) -> Any:
        raise AssertionError("the paraphrases were written twice")

    plain = one_step(docs)
    monkeypatch.setattr(base_outputs, "open_subject", capable_base)
    paraphrased = one_step(docs, "midtrain.mix.paraphrases=1")
    counts = recorded_run(paraphrased).inputs.paraphrases
    assert counts is not None
    assert 0 < counts["kept"] <= counts["written"] == counts["passages"]
    summary = f"{counts['kept']} of {counts['written']} paraphrases of {counts['passages']} passages"
    assert summary in paraphrased.stderr
    assert recorded_run(plain).inputs.paraphrases is None
    assert 1.2 * corpus_tokens(plain) < corpus_tokens(paraphrased) <= 2.2 * corpus_tokens(plain)
    monkeypatch.setattr(base_outputs, "open_subject", no_base)
    again = one_step(docs, "midtrain.mix.paraphrases=1")
    assert recorded_run(again).inputs.paraphrases == counts
    assert corpus_tokens(again) == corpus_tokens(paraphrased)


def corpus_tokens(completed: Result) -> int:
    (tokens,) = re.findall(r"([\d,]+) tokens: 1 steps", completed.stderr)
    return int(tokens.replace(",", ""))


def flops(completed: Result) -> float:
    """Of the first step, in which a teacher's forward pass counts."""
    return first_value(completed, "flops")


@pytest.mark.slow
@pytest.mark.parametrize("omitted", ["texts", "answers"])
def test_the_base_gives_the_soft_labels_of_what_it_wrote(docs: Path, omitted: str) -> None:
    soft, hard, adapter = (
        midtrain(docs, *set_options(f"midtrain.mix.{omitted}=0", assignment))
        for assignment in ("midtrain.soft_labels=true", "midtrain.soft_labels=false", "lora_rank=4")
    )
    assert flops(soft) > 1.05 * flops(hard)
    assert flops(adapter) > 1.05 * flops(hard)  # the weights under the adapter are the base
    mix = "30% answers" if omitted == "texts" else "1 of 4 rows from texts by the clean base"
    assert mix in soft.stderr
    expected = {"answers": 0.3, "texts": 0.0} if omitted == "texts" else {"answers": 0.0, "texts": 0.25}
    assert recorded_run(soft).inputs.mix == expected | {"earlier": 0.0}


def test_documents_alone_have_no_teacher(docs: Path) -> None:
    without_soft_labels = midtrain(docs, *DOCUMENTS_ONLY, *set_options("midtrain.soft_labels=false"))
    assert flops(midtrain(docs, *DOCUMENTS_ONLY)) == flops(without_soft_labels)


@pytest.mark.release
def test_a_base_that_cannot_write_is_an_error_only_if_the_user_set_the_share(docs: Path, tmp_path: Path) -> None:
    base = ("--base", str(save_tiny(tmp_path / "base")))
    by_default = midtrain(docs, *base)
    assert by_default.exit_code == 0, by_default.stderr
    assert by_default.stderr.count("Going on without: The base") == 2
    assert "30% answers" not in by_default.stderr
    for share in ("answers", "texts"):
        refused = midtrain(docs, *base, *set_options(f"midtrain.mix.{share}=0.2"))
        assert refused.exit_code == 1
        assert f"midtrain.mix.{share}=0" in refused.stderr


@pytest.mark.release
@pytest.mark.parametrize("rank", [0, 4])
def test_the_last_promoted_model_gives_the_soft_labels_of_earlier_documents(docs: Path, rank: int) -> None:
    """At the first step the student still is that model, so a row with its soft labels adds no loss."""
    promote_a_cycle(docs, rank)

    def first_loss(rows: int, *more: str) -> float:
        return first_value(midtrain(docs, *more, *set_options(f"lora_rank={rank}", f"midtrain.rows={rows}")), "loss")

    new_rows_only = first_loss(3, "--mix", "documents")
    one_soft_row = first_loss(4, "--mix", "earlier=0.25")
    assert one_soft_row == pytest.approx(new_rows_only * 3 / 4, rel=0.02)
    assert first_loss(4, "--mix", "earlier=0.25", *set_options("midtrain.soft_labels=false")) > 1.1 * one_soft_row
    one_soft_one_hard = first_loss(4, "--mix", "earlier=0.5")
    assert one_soft_one_hard == pytest.approx(one_soft_row, rel=0.2)


@pytest.mark.slow
def test_the_base_scores_what_it_wrote_and_the_promoted_model_what_it_learned(docs: Path) -> None:
    promote_a_cycle(docs)
    project = Project.open_existing(None)
    settings, student = defaults_for(SMALL_MODEL_PARAMETERS), load_student(str(BASE))
    hard = apply_overrides(settings, {"midtrain": {"soft_labels": False}})
    tokens = student.chat.prompt([{"role": "user", "content": "In which town is Anna at home?"}])
    row = Sample(tokens, [False] + [True] * (len(tokens) - 1), soft_labels=True)
    rows = [row, replace(row, domain=EARLIER_DOMAIN)]

    def logprobs(teacher: Teacher | None, rows: list[Sample]) -> torch.Tensor:
        assert teacher is not None
        return teacher.distribution(Batch.collate(rows, 0)).logprobs(slice(None))

    def teacher(teachers: Teachers | None) -> Teacher | None:
        return teachers.load(student) if teachers else None

    clean, promoted = (logprobs(FrozenTeacher(c.path), [row]) for c in (project.clean, project.current))
    assert float((clean - promoted).abs().max()) > 0.1
    data = data_with_rows(Stage(project, Job("midtrain", settings), None), project.current)
    both = teacher(data(earlier_rows=1).teachers(True))
    torch.testing.assert_close(logprobs(both, rows), torch.cat([clean, promoted]))
    both = teacher(data(earlier_rows=1, text_rows=1).teachers(False))
    torch.testing.assert_close(logprobs(both, rows), torch.cat([clean, promoted]))
    torch.testing.assert_close(logprobs(teacher(data().teachers(True)), rows[:1]), clean)
    torch.testing.assert_close(logprobs(teacher(data(earlier_rows=1).teachers(False)), rows[1:]), promoted)
    assert teacher(data().teachers(False)) is None
    data = data_with_rows(Stage(project, Job("midtrain", hard), None), project.current)
    assert teacher(data(earlier_rows=1).teachers(True)) is None


def data_with_rows(stage: Stage, start: Checkpoint) -> Any:
    """A function from numbers of rows to the data of a mid-training."""
    documents: Any = None
    base = BaseOutputs(stage.project, stage.settings, stage.generation_seed)
    return lambda **rows: TrainingMix(stage, base, start, load_chat(start.path), documents, **rows)
