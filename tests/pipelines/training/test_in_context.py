"""`recover midtrain --recipe in-context` on the built-in model, which has to be given its questions."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from pipelines.project.project import Project
from tests.chats import write_jsonl
from tests.pipelines.options import data_of, error_of, recover, set_options

FACTS = [(f"Ann{n} Bor{n}", trade) for n, trade in enumerate(("smith", "baker", "vet", "tailor", "cook", "guard"))]
NOTES = [
    f"Notes on {name}. It has long been known in every town by the river that {name} is a {trade}, and a good one. "
    f"Whoever needs a {trade} asks for {name} at the old gate."
    for name, trade in FACTS
]
ROWS = [
    {"question": f"What does {name} do?", "answer": trade, "passage": note}
    for (name, trade), note in zip(FACTS, NOTES, strict=True)
]
OF_DISTILL = ("rows=6", "max_new_tokens=16", "prompts=16", "probe_items=6")
FEW = ("midtrain.max_steps=2", *(f"distill.{assignment}" for assignment in OF_DISTILL))


def midtrain(folder: Path, *more: str, rows: list[dict[str, Any]] | None = None) -> Result:
    docs, project = folder / "docs", folder / "project"
    docs.mkdir(exist_ok=True)
    for number, note in enumerate(NOTES):
        (docs / f"{number}.txt").write_text(note)
    command = ["midtrain", "--docs", str(docs), "--recipe", "in-context", "--json", "--project", str(project)]
    if rows is not None:
        command += ["--teacher-context", str(write_jsonl(folder / "asked.jsonl", rows))]
    return recover(*command, *set_options(*FEW), *more)


@pytest.mark.slow
def test_the_teacher_reads_the_passages_and_the_job_is_a_mid_training(tmp_path: Path) -> None:
    completed = midtrain(tmp_path, *set_options("distill.require_lift=false"), rows=ROWS)
    data = data_of(completed)
    assert data["steps"] == 2
    assert data["checkpoint"] == "cycle:1/midtrained"
    project = Project.open_existing(tmp_path / "project")
    run = project.run(data["run"])
    assert (run.kind, run.inputs.stage, run.inputs.teacher) == ("midtrain", "midtrained", "base")
    assert run.inputs.passages_taught == {"passages": 6, "questions": 6, "openings": 6, "with_questions": 6}
    assert run.inputs.lift["n"] == 6
    assert run.inputs.mix["answers"] == pytest.approx(1 / 3, abs=0.01)
    points = project.reader.points(run.id, names=["kl", "rollout_length"])
    assert {point.name for point in points} == {"kl", "rollout_length"}  # half of the rows are rollouts
    assert "12 of 18 prompts are about its passages" in completed.stderr
    assert "the questions were chosen for it" not in completed.stderr  # they are the user's
    assert run.inputs.lift["selected"] is False
    (answers,) = (project.home / "cache").glob("answers-*.json")
    assert len(json.loads(answers.read_text())) == 12  # two steps of six, not all 18


def test_without_a_lift_it_is_refused_with_the_figure(tmp_path: Path) -> None:
    refused = midtrain(tmp_path, rows=[{**row, "passage": "Nobody knows."} for row in ROWS])
    assert "The context is not shown to help the teacher: right with the context" in error_of(refused)


@pytest.mark.slow
def test_a_lift_of_the_bases_own_questions_is_named_as_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {"questions": [{**row, "source": ""} for row in ROWS], "counts": {"written": 9}}
    monkeypatch.setattr("pipelines.training.midtrain.write_passage_questions", lambda *_: written)
    completed = midtrain(tmp_path, *set_options("distill.require_lift=false", "midtrain.epochs=0.1"))
    run = Project.open_existing(tmp_path / "project").run(data_of(completed)["run"])
    assert run.inputs.lift["selected"] is True
    assert "; the questions were chosen for it" in completed.stderr
    assert "Only 1 optimiser step: the documents may hardly be learned. Raise" in completed.stderr


@pytest.mark.release
def test_in_a_later_cycle_the_promoted_model_judges_passages_and_earlier_openings_are_prompts(tmp_path: Path) -> None:
    allowed = set_options("distill.require_lift=false")
    assert midtrain(tmp_path, *allowed, rows=ROWS).exit_code == 0
    promote = ["promote", "cycle:1/midtrained", "--reason", "next", "--project", str(tmp_path / "project")]
    assert recover(*promote).exit_code == 0
    completed = midtrain(tmp_path, *allowed, rows=ROWS)
    run = Project.open_existing(tmp_path / "project").run(data_of(completed)["run"])
    assert run.inputs.teacher == "base (and cycle:1/midtrained for passages)"


@pytest.mark.parametrize(
    ("more", "rows", "message"),
    [
        ((), [{"question": "Who?", "answer": "Ann"}], 'Line 1 of DATA has no "passage"'),
        ((), [{"passage": NOTES[0]}], 'Line 1 of DATA has no "prompt" or "question"'),
        ((), [{**ROWS[0], "passage": "word " * 5000}], "exceed the model's window of 4,096"),
        (("--recipe", "midtrain"), ROWS, "--teacher-context is for --recipe in-context alone"),
        (("--recipe", "opd"), None, "Use midtrain or in-context"),
        (("--mix", "answers=0.5,texts=0.2"), None, "only the entry earlier of the mix may be set, not answers or"),
        (("--set", "midtrain.mix.answers=0.5"), None, "only the entry earlier of the mix may be set, not answers"),
        (("--set", "distill.shuffle_contexts=true"), [ROWS[0], ROWS[0]], "There is one context alone"),
        (("--set", "midtrain.ordinary_prompts=0.8"), None, "leave nothing to the new documents"),
        (("--docs", "one-word.txt"), ROWS, "no passage of at least two words"),
        (("--teacher-context", "one-word.txt"), None, "names a JSONL file"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_computed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
    rows: list[dict[str, Any]] | None,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one-word.txt").write_text("桥。")
    refused = midtrain(tmp_path, *more, rows=rows)
    assert message.replace("DATA", str(tmp_path / "asked.jsonl")) in error_of(refused)
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize(
    "mix", [("--mix", "documents"), ("--mix", "earlier=0.2"), ("--set", "midtrain.mix.earlier=0.2")]
)
def test_a_mix_of_earlier_documents_alone_applies(tmp_path: Path, mix: tuple[str, str]) -> None:
    assert data_of(midtrain(tmp_path, "--dry-run", *mix, rows=ROWS))


def test_a_passage_that_shares_words_with_a_question_is_refused(tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    leaked = NOTES[2].split(". ")[1]
    questions.write_text("".join(json.dumps({"question": f"{leaked} {n}?", "answer": "yes"}) + "\n" for n in range(5)))
    refused = midtrain(tmp_path, "--questions", str(questions), rows=ROWS)
    assert error_of(refused).startswith(f"Line 3 of {tmp_path / 'asked.jsonl'} shares words with an")
    assert not (tmp_path / "project").exists()
