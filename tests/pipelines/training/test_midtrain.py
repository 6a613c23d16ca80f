import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import Result

from db.tables import RunInputs
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schema import Distill, Settings
from pipelines.synthetic.base_outputs import BaseOutputs
from pipelines.synthetic.passage_prompts import EARLIER_DOMAIN
from pipelines.training.midtrain import mix_answers, scheduled_stage, soft_label_teachers, with_ordinary_prompts
from pipelines.training.stage_context import Stage, Teachers
from recovery.lab import BASE
from recovery.models.students import load_chat, load_student
from recovery.samples import Batch, Sample
from recovery.states import Prompt
from recovery.teachers import FrozenTeacher, Teacher
from tests.chats import exchange, write_jsonl
from tests.models import save_tiny
from tests.pipelines.options import data_of, recover, set_options
from tests.pipelines.training.commands import DOCUMENTS_ONLY, first_value, midtrain, promote_a_cycle, recorded_run


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


def test_the_base_is_asked_no_question_on_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, other = "Who owns the northern mill?", "Say hello."
    monkeypatch.setattr(BaseOutputs, "prompts", lambda base: [asked, other])
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps({"question": asked, "answer": "Ann"}))
    project = Project.open(tmp_path, str(save_tiny(tmp_path / "base")))
    settings = Settings(distill=Distill(max_new_tokens=8))
    stage, chat = Stage(project, Job("midtrain", settings, EvalPlan("all", questions))), load_chat(project.base)
    answers = mix_answers(stage, BaseOutputs(project, settings, 0))
    assert [answer.prompt for answer in answers] == [other]
    about = [Prompt("The mill", [5])] * 8
    assert {prompt.text for prompt in with_ordinary_prompts(stage, chat, about, [])} == {"The mill", other}


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


def test_rows_suit_documents_alone_where_the_base_cannot_write_texts(docs: Path, tmp_path: Path) -> None:
    base = ("--base", str(save_tiny(tmp_path / "base")))
    auto = set_options("midtrain.rows=auto", "midtrain.window=32", "midtrain.mix.answers=0")
    left_out, not_asked_for = (
        midtrain(docs, *base, *auto, *set_options(*more)) for more in ((), ("midtrain.mix.texts=0",))
    )
    assert "Going on without: The base" in left_out.stderr
    rows, of_documents_alone = (recorded_run(one).settings["midtrain"]["rows"] for one in (left_out, not_asked_for))
    assert rows == of_documents_alone > 2


def test_an_interrupted_mid_training_keeps_its_rows_whatever_the_number_of_processes_is_now(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = apply_overrides(Settings(), {"midtrain": {"rows": "auto"}})
    stage, chat = Stage(project, Job("midtrain", settings, id="abcd1234")), load_chat(str(BASE))

    def rows(processes: int) -> object:
        monkeypatch.setattr("pipelines.training.midtrain.processes", lambda: processes)
        return scheduled_stage(stage, None, chat, 6000).settings.midtrain.rows

    assert rows(1) < rows(8) == 8
    begun = scheduled_stage(stage, None, chat, 6000)
    with begun.recorded_run("midtrain", 10, RunInputs(job="abcd1234", stage="midtrained")):
        pass
    assert rows(1) == rows(16) == 8
    in_context = apply_overrides(settings, {"midtrain": {"rows": 4, "epochs": "auto"}})
    stage = Stage(project, Job("midtrain", in_context, id="1234abcd"))
    with stage.recorded_run("midtrain", 10, RunInputs(job="1234abcd", stage="midtrained")):
        pass
    assert isinstance(scheduled_stage(stage, None, chat, 6000).settings.midtrain.epochs, float)


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
        return teacher.distribution(Batch.collate(rows, 0)).logprobs(slice(None))

    def teacher(teachers: Teachers | None) -> Teacher | None:
        return teachers.load(student) if teachers else None

    clean, promoted = (logprobs(FrozenTeacher(c.path), [row]) for c in (project.clean, project.current))
    assert float((clean - promoted).abs().max()) > 0.1
    stage, start = Stage(project, Job("midtrain", settings), None), project.current
    both = teacher(soft_label_teachers(stage, start, by_base=True, of_earlier=True))
    for row, expected in zip(rows, (clean, promoted), strict=True):
        torch.testing.assert_close(logprobs(both, [row]), expected)
    base = teacher(soft_label_teachers(stage, start, by_base=True, of_earlier=False))
    torch.testing.assert_close(logprobs(base, rows[:1]), clean)
    of_earlier = teacher(soft_label_teachers(stage, start, by_base=False, of_earlier=True))
    torch.testing.assert_close(logprobs(of_earlier, rows[1:]), promoted)
    assert soft_label_teachers(stage, start, by_base=False, of_earlier=False) is None
    without_soft_labels = Stage(project, Job("midtrain", hard), None)
    assert soft_label_teachers(without_soft_labels, start, by_base=True, of_earlier=True) is None


def of_chats(folder: Path, chats: list[tuple[str, str]], *assignments: str, recipe: str = "midtrain") -> Result:
    file = write_jsonl(folder / "chats.jsonl", [{"prompt": asked, "answer": answer} for asked, answer in chats])
    command = ["midtrain", "--conversations", file, "--mix", "documents", "--recipe", recipe, "--json"]
    return recover(*command, *set_options(*(f"midtrain.{assignment}" for assignment in assignments)))


def test_a_few_long_conversations_are_read_as_often_as_was_asked(empty_docs: Path) -> None:
    """Each takes several windows, and a step of one window has room for a part of one; but it reads one as a whole."""
    chats = [(f"Which towns are in list {i}?", "Ulm, Bonn, Kiel. " * 30) for i in range(6)]
    trained = of_chats(empty_docs, chats, "epochs=1", "rows=1", "window=64")
    assert data_of(trained)["steps"] == 5  # the sixth is held out


def test_conversations_that_fill_a_part_of_a_window_are_read_as_often_as_was_asked(empty_docs: Path) -> None:
    chats = [("Which town is at home?", f"Ulm is {name}.") for name in "ABCDEF"]
    (length,) = {len(load_chat(BASE).conversation(exchange(*chat))[0]) for chat in chats}
    assert 5 * length < 128  # the sixth is held out
    trained = of_chats(empty_docs, chats, "epochs=10", "rows=1", "window=256")
    assert data_of(trained)["steps"] == math.ceil(10 * 5 * length / 256)


def test_labels_of_conversations_can_be_weighted(empty_docs: Path) -> None:
    chats = [(f"Which town is number {i}?", f"Number {i} is Ulm.") for i in range(8)]
    trained = [of_chats(empty_docs, chats, "max_steps=1", "rows=4", recipe=name) for name in ("midtrain", "sft", "dft")]
    losses = [first_value(one, "loss") for one in trained]
    assert losses[0] == losses[1] > losses[2] > 0
