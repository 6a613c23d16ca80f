import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from db.tables import RunInputs
from evals.suites.suite_measurement import of_file
from pipelines.cycle import Cycle
from pipelines.evaluation.checkpoint_measurement import store_results
from pipelines.prepare_repair import _fixed_copy, prepare_repair
from pipelines.project.project import Project, weights_hash
from pipelines.request import Request
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.chat_template import same_chat_template
from recovery.models.students import load_chat
from tests.evals.fakes import result
from tests.pipelines.project.checkpoints import promoted_cycle
from tests.stop_contracts import copy_of_base, end_with_a_new_token


def change_template(model: Path) -> None:
    """Prompts begin otherwise, and turns end as before."""
    template = model / "chat_template.jinja"
    template.write_text("### " + template.read_text())


def test_a_check_needs_less_than_a_training(tmp_path: Path, empty_docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.training_memory.free_memory", lambda: 1)
    (tmp_path / "recover.toml").write_text('report_to = "wandb"\n[distill]\nrecipe = "sft"\n')
    request = Request("check", student=str(shutil.copytree(BASE, tmp_path / "tune")))
    assert prepare_repair(Project.open(None), request, trains=False).command == "repair"
    (tmp_path / "recover.toml").unlink()
    with pytest.raises(RecoverError, match="of memory, and"):
        prepare_repair(Project.open(None), replace(request, command="repair"))


def test_a_repair_goes_on_after_its_project_was_moved(tmp_path: Path, docs: Path) -> None:
    questions, prompts = tmp_path / "questions.jsonl", tmp_path / "prompts.jsonl"
    questions.write_text('{"question": "Who?", "answer": "Ada"}\n')
    prompts.write_text('{"prompt": "Say hello."}\n')
    shutil.copytree(BASE, tmp_path / "one" / "tune")

    def id_of(folder: str, docs: Path, questions: Path | None = None, **more: Any) -> str:
        model = str(tmp_path / folder / "tune")
        request = Request("repair", student=model, docs=docs, questions=questions, prompts=prompts, **more)
        return prepare_repair(Project.open(tmp_path / folder), request).id

    before = [id_of("one", docs, questions), id_of("one", docs)]
    assert id_of("one", docs, seed=1) not in before
    shutil.move(tmp_path / "one", tmp_path / "two")
    docs = docs.rename(tmp_path / "documents")
    assert [id_of("two", docs, questions), id_of("two", docs)] == before
    (docs / "00.md").write_text("Another text.")
    assert id_of("two", docs) not in before


@pytest.mark.parametrize(("probe_every", "is_of_probes"), [(10, True), (0, False)])
def test_a_repair_with_another_limit_is_the_same_unless_its_probes_are_others(
    project: Project, tmp_path: Path, probe_every: int, is_of_probes: bool
) -> None:
    settings = (f"distill.probe_every={probe_every}", "distill.probe_items=100")
    request = Request("repair", student=str(shutil.copytree(BASE, tmp_path / "tune")), assignments=settings)
    few, *more = (prepare_repair(project, replace(request, limit=limit)).id for limit in (40, 100, 900, None))
    assert len(set(more)) == 1
    assert (few not in more) == is_of_probes


def test_a_checkpoint_of_a_later_cycle_is_asked_what_the_earlier_ones_taught(
    project: Project, tmp_path: Path, docs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = [tmp_path / name for name in ("first.jsonl", "second.jsonl")]
    for file in files:
        file.write_text(json.dumps({"question": f"Who is {file.stem}?", "answer": "Ada"}))
    first = promoted_cycle(project, files[0])
    store_results(project, first, None, "key", of_file(files[0], [result([True], "closed_book", "knowledge")]))
    cycle, _ = project.tracker.open_cycle(project.id)
    run = project.tracker.start_run(
        project.id, "midtrain", cycle, inputs=RunInputs(corpus="d0c", questions=str(files[1]))
    )
    folder = copy_of_base(project.checkpoint_folder(run))
    weights = weights_hash(folder)
    project.tracker.checkpoint(project.id, "midtrained", folder, parent=first.id, run=run, cycle=cycle, hash=weights)
    job = prepare_repair(project, Request("repair", student="cycle:2/midtrained"))
    assert (job.start, [number for number, _ in job.eval_plan.earlier_questions]) == (job.student, [1])
    assert job.eval_plan.questions == files[1]
    assert [past.cycle for past in Cycle(project, job).past_cycles()] == [1]
    given = prepare_repair(project, Request("repair", student="cycle:2/midtrained", docs=docs))
    assert given.eval_plan.passages is not None
    assert given.eval_plan.questions is None
    change_template(folder)
    mended = prepare_repair(project, Request("repair", student="cycle:2/midtrained"))
    assert mended.student != mended.start == job.student
    assert mended.eval_plan == job.eval_plan
    files[1].unlink()
    unguarded = prepare_repair(project, Request("check", student="cycle:2/midtrained"), trains=False)
    assert unguarded.eval_plan.questions is None
    assert f"{files[1]}, are gone" in caplog.text
    outside = prepare_repair(project, Request("repair", student=str(copy_of_base(tmp_path / "mine"))))
    assert (outside.start, outside.eval_plan.earlier_questions, outside.eval_plan.questions) == (None, (), None)


def test_a_copy_with_the_chat_template_of_the_base_keeps_the_tokens_that_were_added(tmp_path: Path) -> None:
    model = copy_of_base(tmp_path / "model")
    end_with_a_new_token(model)
    tokenizer = load_chat(str(model)).tokenizer
    tokenizer.bos_token = "<|done|>"
    tokenizer.save_pretrained(model)
    base, own = load_chat(str(BASE)), load_chat(str(model))
    assert not same_chat_template(own, base)
    copied = load_chat(_fixed_copy(Project.open(tmp_path / "project"), str(model), True, None))
    assert same_chat_template(copied, base)
    assert copied.tokenizer.get_vocab() == own.tokenizer.get_vocab()
    assert (copied.tokenizer.bos_token, copied.tokenizer.eos_token) == (
        base.tokenizer.bos_token,
        base.tokenizer.eos_token,
    )


@pytest.mark.parametrize(
    ("part", "sentence"), [("<|im_end|>", "ended turns with no token"), ("user", "was not that of")]
)
def test_a_template_that_is_replaced_is_named_whether_its_end_is_another_or_not(
    tmp_path: Path, part: str, sentence: str
) -> None:
    model = copy_of_base(tmp_path / "model")
    template = model / "chat_template.jinja"
    if part == "<|im_end|>":
        template.write_text(template.read_text().replace(part, ""))
    else:
        change_template(model)
    job = prepare_repair(Project.open(tmp_path / "project"), Request("repair", student=str(model)))
    assert sentence in job.fixed


def test_only_large_files_are_shared_with_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer is saved into files of many names: through a link it would change the model's own."""
    monkeypatch.setattr("pipelines.prepare_repair.LARGE", 1 << 20)
    model = copy_of_base(tmp_path / "model")
    (model / "sentencepiece.bpe.model").write_bytes(b"pieces")
    copied = Path(_fixed_copy(Project.open(tmp_path / "project"), str(model), True, None))
    assert {file.name for file in copied.iterdir() if file.is_symlink()} == {"model.safetensors"}
    assert (copied / "sentencepiece.bpe.model").read_bytes() == b"pieces"
