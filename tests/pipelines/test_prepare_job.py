import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from db.tables import RunInputs
from pipelines.documents.corpus import read_corpus
from pipelines.job import Job, store_file, store_prompts
from pipelines.prepare_job import (
    _held_out,
    check_same_models,
    describe_job,
    eval_plan,
    evenly,
    prepare_job,
    teachers_in_memory,
    warn_of_no_recall,
)
from pipelines.prepare_repair import prepare_repair
from pipelines.project.project import Project, weights_hash
from pipelines.request import Request
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import apply_overrides, change_recipe
from pipelines.settings.schema import Settings
from pipelines.storage import content_hash
from pipelines.teacher_choice import parse_teacher
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.students import load_chat
from tests.models import change_json, save_tiny
from tests.pipelines.options import data_of, recover, refusal
from tests.pipelines.project.checkpoints import promoted_cycle
from tests.stop_contracts import copy_of_base


def test_after_too_large_a_base_another_is_used(docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = ("midtrain", "--docs", str(docs), "--base", str(save_tiny(tmp_path / "other")), "--dry-run")
    monkeypatch.setattr("pipelines.training_memory.free_memory", lambda: 1)
    assert "of memory, and" in refusal("midtrain", "--docs", docs)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert recover(*other).exit_code == 0


def test_a_distillation_of_a_recovered_model_is_measured_by_what_its_mid_training_was_given(tmp_path: Path) -> None:
    """Else new knowledge would be unguarded in the next attempt."""
    project = Project.open(tmp_path)
    questions = project.home / "questions" / "ab" / "q.jsonl"
    questions.parent.mkdir(parents=True)
    questions.write_text('{"question": "Who?", "answer": "Ada"}\n')
    cycle, parent, plans = project.tracker.open_cycle(project.id).id, project.clean.id, []
    for kind, role, inputs in (
        ("midtrain", "midtrained", RunInputs(questions=str(questions), corpus="ab12")),
        ("distill", "recovered", RunInputs()),
    ):
        run = project.tracker.start_run(project.id, kind, cycle, inputs=inputs)
        parent = project.tracker.checkpoint(
            project.id, role, tmp_path / role, parent=parent, run=run, cycle=cycle, hash="ab"
        )
        student = project.reader.checkpoint(parent)
        plans.append(eval_plan(project, Request("distill"), student, student).questions)
    assert plans == [questions, questions]
    project.tracker.promote(project.id, cycle, parent, "promoted", "gate", "passes")
    promoted = project.reader.checkpoint(parent)
    plan = eval_plan(project, Request("distill"), promoted, promoted)
    assert (plan.questions, plan.earlier_questions) == (questions, ()), "no question is asked twice"


def test_a_cycle_with_the_questions_of_an_earlier_one_is_measured_by_them_as_that_one_s_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else it could lose all that the earlier cycle had taught, and be promoted."""
    project, file = Project.open(tmp_path), tmp_path / "q.jsonl"
    file.write_text('{"question": "Who?", "answer": "Ada"}\n')
    stored = store_file(project, file, "questions")
    promoted = promoted_cycle(project, stored)
    with caplog.at_level("WARNING"):
        plan = eval_plan(project, Request("cycle", questions=file), promoted, None)
    assert f"the gate does not guard what it taught. Measure it with `recover eval {promoted.reference} " in caplog.text
    assert (plan.questions, plan.earlier_questions) == (stored, ((1, stored),))
    keys = plan.keys("weights", {})
    assert {"knowledge", "cycle:1"} <= keys.keys()
    assert keys["knowledge"] != keys["cycle:1"]
    again = eval_plan(project, Request("distill", questions=file), promoted, promoted)
    assert (again.questions, again.earlier_questions) == (stored, ())


def test_stored_questions_that_are_gone_are_named_before_a_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    project = Project.open(tmp_path)
    stored = project.home / "questions" / "ab" / "q.jsonl"
    promoted = promoted_cycle(project, stored)
    with caplog.at_level("WARNING"):
        assert eval_plan(project, Request("cycle"), promoted, None).earlier_questions == ()
    assert f"The questions of cycle 1, {stored}, are gone, so the gate does not guard" in caplog.text
    with pytest.raises(RecoverError, match=r"of run 1, .*q\.jsonl, are gone\. Restore them, or name questions with"):
        eval_plan(project, Request("distill"), promoted, promoted)


def test_a_model_from_outside_that_was_changed_is_not_resumed_with(tmp_path: Path) -> None:
    model = copy_of_base(tmp_path / "model")
    project = Project.open(tmp_path / "project")
    distill, repair = (Request(command, student=str(model)) for command in ("distill", "repair"))
    for prepare in (lambda: prepare_job(project, distill), lambda: prepare_repair(project, repair)):
        job = prepare()
        check_same_models(project, job)
        change_json(model / "generation_config.json", temperature=len(job.command))
        with pytest.raises(RecoverError, match="was changed since this command began"):
            check_same_models(project, job)


def test_a_teacher_from_outside_that_was_changed_is_not_resumed_with(docs: Path, tmp_path: Path) -> None:
    teacher = copy_of_base(tmp_path / "teacher")
    project = Project.open(tmp_path / "project")
    job = prepare_job(project, Request("cycle", docs=docs, teacher=str(teacher)))
    job = Job.from_json(json.loads(json.dumps(job.as_json())), project.home)
    check_same_models(project, job)
    change_json(teacher / "generation_config.json", temperature=0.5)
    with pytest.raises(RecoverError, match="teacher was changed since this command began"):
        check_same_models(project, job)
    shutil.rmtree(teacher)
    with pytest.raises(RecoverError, match="teacher is gone since this command began"):
        check_same_models(project, job)


def test_a_model_that_lacks_a_promoted_cycle_is_distilled_with_a_warning_and_not_repaired(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    folder = copy_of_base(project.checkpoint_folder(1))
    cycle, _ = project.tracker.open_cycle(project.id)
    hash = weights_hash(folder)
    older = project.tracker.checkpoint(project.id, "midtrained", folder, cycle=cycle, hash=hash)
    promoted_cycle(project)
    student = project.reader.checkpoint(older).reference
    with caplog.at_level("WARNING"):
        describe_job(project, Request("distill", student=student))
        prepare_job(project, Request("distill", student=student))
    assert caplog.text.count("The current model has learned cycle 2, and cycle:1/midtrained has not") == 2
    with pytest.raises(RecoverError, match="its repair would drop that"):
        prepare_repair(project, Request("repair", student=student))


@pytest.mark.parametrize(
    ("text", "warns"), [("这座桥是很久以前建的，后来被重新修过。", True), ("It was built by Ada Brenn.", False)]
)
def test_documents_whose_recall_cannot_be_measured_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, warns: bool
) -> None:
    passages = tmp_path / "passages.jsonl"
    passages.write_text(json.dumps({"text": text}) + "\n")
    with caplog.at_level("WARNING"):
        warn_of_no_recall(passages)
    assert ("new knowledge is shown in bits per byte, and not judged" in caplog.text) == warns


def test_questions_that_are_learned_by_heart_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"Where is ship {number}?", "answer": f"In port {number}."} for number in range(4)]
    for name, questions in (("chats.jsonl", rows), ("same.jsonl", rows[2:] + rows[:1]), ("others.jsonl", rows[:0])):
        others = [] if name == "chats.jsonl" else [{"question": "Which ship is in port 1?", "answer": "Ship 1"}]
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in questions + others))
    for source in ("--conversations", "chats.jsonl"), ("--docs", "chats.jsonl"):
        command = ("cycle", *source, "--dry-run", "--questions")
        assert "3 of the 4 questions are in what is learned" in recover(*command, "same.jsonl").stderr
        assert "in what is learned" not in recover(*command, "others.jsonl").stderr


def test_a_dry_run_prints_one_setting_a_line_and_leaves_nothing(docs: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    command = ["cycle", "--docs", str(docs), "--set", "midtrain.mix.texts=0.1", "--set", "bf16=false", "--dry-run"]
    lines = recover(*command).stdout.splitlines()
    expected = {"command: cycle", "settings:", "  bf16 = false", "  midtrain.mix.texts = 0.1", "  distill.recipe = opd"}
    assert expected <= set(lines)
    assert not [line for line in lines if "{" in line or "None" in line]
    plan = data_of(recover(*command, "--json"))
    assert (plan["start"], plan["teacher"], plan["files"]) == ("base", "base", 60)
    assert plan["distill_steps"] > 3
    assert data_of(recover(*command, "--max-steps", "3", "--json"))["distill_steps"] == 3
    by_default = data_of(recover("cycle", "--docs", str(docs), "--dry-run", "--json"))
    assert by_default["midtrain_steps"] == data_of(recover("documents", str(docs), "--json"))["steps"]
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("cycle", "--questions", "invalid.jsonl"),
        ("cycle", "--ifeval-data", "invalid.jsonl"),
        ("cycle", "--recipe", "grpo"),
        ("midtrain", "--base", "no-tokenizer"),
        ("questions", "--out", "docs/questions.jsonl"),
        ("questions", "--out", "invalid.jsonl/questions.jsonl"),
    ],
)
def test_refused_commands_create_no_project(docs: Path, tmp_path: Path, command: str, option: str, value: str) -> None:
    (tmp_path / "invalid.jsonl").write_text("no JSON")
    (tmp_path / "no-tokenizer").mkdir()
    shutil.copy(BASE / "config.json", tmp_path / "no-tokenizer")
    before = sorted(tmp_path.iterdir())
    refusal(command, "--docs", docs, option, value)
    assert sorted(tmp_path.iterdir()) == before


def test_a_dry_run_and_a_refused_command_record_no_model_from_outside(project: Project, tmp_path: Path) -> None:
    assert project.clean
    model = copy_of_base(tmp_path / "model")
    before = len(project.reader.checkpoints(project.id))
    command = ("distill", "--project", project.root, "--student", model, "--teacher", model)
    plan = data_of(recover(*command, "--dry-run", "--json"))
    assert (plan["start"], plan["teacher"]) == (str(model), str(model))
    refusal(*command, "--prompts", "missing.jsonl")
    assert len(project.reader.checkpoints(project.id)) == before


def test_a_dry_run_refuses_vllm_that_is_not_installed(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.model_loading.find_spec", lambda name: None)
    assert "vLLM is not installed" in refusal("cycle", "--docs", docs, "--engine", "vllm", "--dry-run")


def test_a_refused_command_creates_no_database(docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVER_DB", f"sqlite:///{tmp_path}/record.db")
    refusal("cycle", "--docs", docs, "--teacher", "run:7")
    assert not (tmp_path / "record.db").exists()


def test_the_documents_are_read_once(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    monkeypatch.setattr("pipelines.prepare_job.read_corpus", lambda path: (paths.append(path), read_corpus(path))[1])
    assert prepare_job(Project.open(None), Request("midtrain", docs=docs)).corpus is not None
    assert paths == [docs]


def test_memory_is_checked_for_the_teachers_that_will_be_loaded() -> None:
    default, midtraining = defaults_for(SMALL_MODEL_PARAMETERS), Request("midtrain", docs=Path("docs"))

    def teachers(request: Request, settings: Settings, promoted: str | None = None) -> tuple[list[str], list[str]]:
        return teachers_in_memory(request, settings, parse_teacher(request.teacher), "clean", promoted)

    assert teachers(midtraining, default) == (["clean"], [])
    assert teachers(midtraining, default, "last") == (["clean", "last"], [])
    overrides: tuple[dict[str, Any], ...] = (
        {"soft_labels": False},
        {"mix": {"answers": 0.0, "texts": 0.0, "earlier": 0.0}},
    )
    for override in overrides:
        settings = apply_overrides(default, {"midtrain": override})
        assert teachers(midtraining, settings, "last") == ([], [])
        assert teachers(Request("distill"), settings) == ([], ["clean"])
    documents = apply_overrides(default, {"midtrain": {"mix": {"answers": 0.0, "texts": 0.0}}})
    assert teachers(midtraining, documents) == ([], [])
    assert teachers(midtraining, documents, "last") == (["last"], [])
    router = Request("cycle", docs=Path("docs"), teacher="router")
    assert teachers(router, default, "last") == (["clean", "last"], ["clean", "last"])
    assert teachers(Request("repair", docs=Path("docs")), default, "last") == ([], ["clean"]), "it reads them beside"
    for unscored in ("sft", "grpo", "offpolicy"):
        changed = change_recipe(default, unscored, SMALL_MODEL_PARAMETERS, {})
        assert teachers(Request("distill"), changed) == ([], [])
    continued = change_recipe(default, "continuation", SMALL_MODEL_PARAMETERS, {})
    assert teachers(Request("distill"), continued) == ([], ["clean"])


def test_conversations_without_an_answer_that_fits_create_no_project(tmp_path: Path, empty_docs: Path) -> None:
    (file := tmp_path / "chats.jsonl").write_text(json.dumps({"prompt": "say " * 5000, "answer": "It."}))
    refused = refusal("repair", shutil.copytree(BASE, tmp_path / "tune"), "--docs", file)
    assert "chats.jsonl has no conversation with an answer" in refused
    assert not (tmp_path / ".recover").exists()


def test_a_folder_of_conversations_is_learned_and_other_files_are_called_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chats").mkdir()
    for name in ("a.jsonl", "b.json"):
        (Path("chats") / name).write_text(json.dumps({"prompt": f"What is {name}?", "answer": "A file."}))
    command = ("midtrain", "--dry-run", "--json", "--conversations")
    assert data_of(recover(*command, "chats"))["conversations"] == 2
    Path("chats.csv").write_text("prompt,answer\nHi,Hello\n")
    assert data_of(recover(*command, "chats.csv"))["conversations"] == 1
    Path("towns.csv").write_text("name,town\nAda,Oslo\n")
    (Path("chats") / "notes.md").write_text("A note.")
    for path in ("chats", "towns.csv"):
        assert f"{path} has no conversations, or files of other kinds" in refusal(*command, path)


@pytest.mark.parametrize(("rows", "every"), [(1, 1), (299, 1), (301, 1), (599, 1), (5000, 10), (25, 10)])
def test_a_sample_of_conversations_reaches_over_all_of_them(rows: int, every: int) -> None:
    chat = load_chat(str(BASE))
    conversations = [conversation("Yes.") | {"number": number} for number in range(rows)]
    sample = [int(row["number"]) for row in evenly(conversations, chat, every)]
    assert len(sample) == len(set(sample)) == min(300, -(-rows // every))
    gaps = [after - before for before, after in zip(sample, [*sample[1:], rows], strict=True)]
    assert max(gaps) - min(gaps) <= 1


def conversation(answer: str) -> dict[str, Any]:
    asked = {"role": "user", "content": "Is it open?"}
    return {"messages": [asked, {"role": "assistant", "content": answer}] if answer else [asked]}


def test_what_is_held_out_can_be_scored() -> None:
    conversations = [conversation("") if i % 10 else conversation(f"Until {i}.") for i in range(3, 43)]
    chat = load_chat(str(BASE))
    assert _held_out(conversations, chat) == [], "none would be left to learn from"
    more = [*conversations, conversation("From nine.")]
    assert _held_out(more, chat) == [conversation(f"Until {i}.") for i in (10, 20, 30, 40)]


def test_a_copy_that_the_project_has_can_be_named(project: Project, tmp_path: Path) -> None:
    (file := tmp_path / "q.jsonl").write_text("{}\n")
    copy = store_file(project, file, "ifeval")
    assert store_file(project, copy, "ifeval") == copy
    copy.write_text("")  # as after a full disk
    assert store_file(project, file, "ifeval") == copy
    assert copy.read_text() == file.read_text()


def test_prompts_are_stored_under_a_name_that_does_not_change(empty_docs: Path, tmp_path: Path) -> None:
    (file := tmp_path / "prompts.txt").write_text("Où ?\nSay it.\n")
    copy = store_prompts(Project.open(None), file)
    lines = '{"prompt": "Où ?"}\n{"prompt": "Say it."}'
    assert (copy.read_text(), copy.name) == (lines + "\n", f"prompts-{content_hash(lines)[:16]}.jsonl")


def test_servers_that_do_not_answer_are_planned_for_and_refused_before_a_training(empty_docs: Path) -> None:
    command = ["distill", "--student", str(BASE), "--teacher", "http://127.0.0.1:9", "--engine", "http://127.0.0.1:9,x"]
    adapter = ("--set", "lora_rank=8")
    assert data_of(recover(*command, *adapter, "--dry-run", "--json"))["teacher"] == "http://127.0.0.1:9"
    assert "'x' is no address of a vLLM server" in refusal(*command, *adapter)
    unanswered = refusal(*command[:-1], "http://127.0.0.1:9", *adapter)
    assert "No vLLM server answers at http://127.0.0.1:9" in unanswered
    assert "vllm serve" in unanswered
    assert "the teacher writes and scores nothing" in refusal(*command[:-2], "--recipe", "continuation")
