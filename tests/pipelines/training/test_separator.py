import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from db.tables import RunInputs
from pipelines.project.project import Project
from pipelines.training.separator import likelihoods, measured_separator
from recovery.engines.transformers import TransformersEngine
from recovery.models.chat_template import Chat, document_ends
from recovery.models.students import checkpoint_metadata, load_chat, load_student
from recovery.states import Documents
from tests.chat_families import UNNAMED
from tests.evals.fakes import ScriptedEngine
from tests.models import tiny_tokenizer
from tests.pipelines.options import data_of, recover, set_options
from tests.pipelines.training.commands import DOCUMENTS_ONLY, SMALL_MIDTRAIN
from tests.pipelines.training.notes import NOTES, corpus_of_notes, stage_of, write_notes


def test_the_likelihood_is_that_of_the_first_tokens_behind_each_candidate() -> None:
    engine = ScriptedEngine(str, lambda text: -1.0 if text.startswith("b") else -2.0 - (len(text) == 2))
    chat = Chat.from_tokenizer(tiny_tokenizer())
    assert likelihoods(engine, chat, [ord("a"), ord("b")], [[ord("x"), ord("y")], [], [ord("z")]]) == [-2.75, -1.0]


def test_a_candidate_is_followed_by_what_follows_a_separator_in_rows_of_documents() -> None:
    chat, rows = Chat.from_tokenizer(tiny_tokenizer(adds_bos=True)), list[str]()
    ids = chat.tokenizer.encode("Tulips", add_special_tokens=False)
    (row,) = Documents([ids, ids], chat.separator, window=99, rows=1, begin_id=chat.document_bos).draw(None, 0)
    engine = ScriptedEngine(str, lambda text: rows.append(text) or -1.0)
    likelihoods(engine, chat, [chat.separator], [ids])
    assert "".join(map(chr, row.tokens[len(ids) + 1 :])).startswith(rows[-1][1:])


def test_a_measured_separator_is_recorded_and_kept(tmp_path: Path) -> None:
    base = UNNAMED.save(tmp_path / "base", seed=1)
    student = load_student(str(base), frozen=True)
    candidates = document_ends(student.chat.tokenizer)
    ids = [student.chat.tokenizer.encode(note, add_special_tokens=False)[:32] for note in NOTES]
    scores = likelihoods(TransformersEngine(student), student.chat, candidates, ids)
    best = candidates[scores.index(max(scores))]
    assert best != student.chat.separator  # else this test shows nothing

    folder, docs, few = tmp_path / "project", write_notes(tmp_path), set_options(*SMALL_MIDTRAIN)
    command = ["midtrain", "--docs", str(docs), "--base", str(base), "--project", str(folder), "--json"]
    data = data_of(recover(*command, *few, *DOCUMENTS_ONLY))
    project = Project.open_existing(folder)
    run = project.run(data["run"])
    assert run.inputs.separator == best
    path = project.path_of(data["checkpoint"])
    assert checkpoint_metadata(path)["separator"] == best
    chat = load_chat(path)
    assert chat.separator == best
    assert {best, *student.chat.eos_ids} == chat.eos_ids


def test_a_separator_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, stage = corpus_of_notes(tmp_path), stage_of(tmp_path, UNNAMED)
    project, start = stage.project, stage.project.clean
    best = measured_separator(stage, corpus, start)
    monkeypatch.setattr("pipelines.training.separator.load_frozen", None)
    assert measured_separator(stage, corpus, start) == best  # from the cache
    shutil.rmtree(project.home / "cache")
    stage = replace(stage, job=replace(stage.job, id="c0ffee"))
    inputs = RunInputs(job=stage.job.id, stage="midtrained", separator=3)
    project.tracker.start_run(project.id, "midtrain", inputs=inputs)
    assert measured_separator(stage, corpus, start) == 3
    promoted = tmp_path / "promoted"
    shutil.copytree(project.base, promoted)
    (promoted / "recover.json").write_text('{"separator": 2}')
    assert measured_separator(stage, corpus, start.replaced(path=str(promoted))) == 2
