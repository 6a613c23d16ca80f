import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

from db.tables import RunInputs
from pipelines import model_loading
from pipelines.gate.promotion import decide
from pipelines.project.export import _processor_files, export_checkpoint, model_card, without_files
from pipelines.project.project import Project
from recovery.lab import BASE
from recovery.models.students import load_student, save_student
from tests.db.seeded import store_verdict
from tests.full_disk import full_disk
from tests.pipelines.options import answer
from tests.pipelines.project.checkpoints import record_checkpoint


def test_the_exported_suites_name_no_path_of_this_machine() -> None:
    suites = {"behaviour": "lab,/home/ada/base/house.jsonl", "retention": "/home/ada/old.yaml", "knowledge": "gsm8k"}
    assert without_files(suites) == ({"behaviour": "lab", "knowledge": "gsm8k"}, ["house.jsonl", "old.yaml"])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A promoted cycle on a base with a card of its own."""
    base = tmp_path / "base"
    base.mkdir()
    (base / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Base\n")
    project = Project.open(tmp_path / "project", str(base))
    corpus = project.tracker.corpus("/home/ada/handbook", "c0ffee")
    cycle, _ = project.tracker.open_cycle(project.id, corpus)
    checkpoint = record_checkpoint(project, cycle, 1)
    metric = {"value": 0.8125, "n": 16, "stderr": 0.1, "ci95": [0.6, 0.9]}
    score = {"suite": "behaviour", "task": "ifeval", "data": "lab", "seconds": 1.0}
    project.tracker.evaluation(checkpoint, None, score | {"metrics": {"prompt_level_strict_acc": metric}})
    run = project.tracker.start_run(project.id, "eval", cycle)
    for task, value in (("arithmetic", 0.9), ("own_world", 0.6)):
        knew = {"suite": "retention", "task": task, "data": "lab", "seconds": 1.0}
        project.tracker.evaluation(checkpoint, run, knew | {"metrics": {"match": {"value": value, "n": 20}}})
    decide(project, project.resolve("cycle:1"), "promoted", "good")
    return project


def test_the_card_has_valid_metadata_scores_and_lineage(project: Project, tmp_path: Path) -> None:
    checkpoint = project.resolve("cycle:1")
    model_card(project, checkpoint, "adapter", ["house.jsonl"]).save(tmp_path / "README.md")
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.to_dict() == {
        "license": "apache-2.0",
        "base_model": "base",
        "library_name": "peft",
        "tags": ["recover", "mid-training", "distillation"],
    }
    assert card.text.startswith("\n# cycle:1/recovered\n")
    heading = (
        "| checkpoint, newest first | instruction following | new knowledge | earlier cycles | what it knew before |"
    )
    assert f"{heading}\n|---|---|---|---|---|" in card.text
    assert "| cycle:1/recovered | 0.812 (n = 16) | - | - | 0.750 (n = 40) |" in card.text
    assert f"| clean model ({project.base}) | - | - | - | - |" in card.text
    assert "Documents, oldest cycle first: handbook." in card.text
    assert "not included: house.jsonl." in card.text
    assert "merging" not in card.text
    checkpoint.kind = "adapter"
    assert "merging both rounded the weights" in model_card(project, checkpoint, "full").text
    assert f"SHA-256 of the exported checkpoint: {checkpoint.hash}." in card.text


def test_the_card_says_how_the_model_was_distilled(project: Project) -> None:
    parent = project.tracker.checkpoint(project.id, "midtrained", "run-8", parent=project.clean.id, step=10)
    for step, recipe, teacher, then in (
        (0, "opd", "base", "."),  # a model that passed as it was is recorded with no steps
        (10, "opd", "base", "; its instruction following was then distilled back from the clean model."),
        (10, "opd", "base at http://10.0.0.1:8000", "; its instruction following was then distilled back from the"),
        (10, "opd", "/home/ada/teacher", "; it was then trained with the recipe opd, by another teacher."),
        (10, "grpo", "base", "; it was then trained with the recipe grpo."),
    ):
        settings = {"distill": {"recipe": recipe}}
        run = project.tracker.start_run(project.id, "distill", settings=settings, inputs=RunInputs(teacher=teacher))
        recovered = project.tracker.checkpoint(project.id, "recovered", "run-9", parent=parent, run=run, step=step)
        text = model_card(project, project.reader.checkpoint(recovered), "full").text
        assert f"Mid-trained on new documents with `recover`{then}" in text


def test_the_card_of_a_model_from_outside_says_what_it_is(project: Project, tmp_path: Path) -> None:
    (tmp_path / "my-tune").mkdir()
    (tmp_path / "my-tune" / "adapter_config.json").write_text("{}")
    outside = project.resolve(str(tmp_path / "my-tune"))
    assert outside.kind == "adapter"
    assert "merging both rounded the weights" in model_card(project, outside, "full").text
    card = model_card(project, outside, "adapter", below=str(tmp_path / "my-tune"))
    assert card.data.base_model == "my-tune", "what the adapter is put on"
    assert card.text.startswith("\n# my-tune\n")
    assert str(tmp_path / "my-tune") not in card.text
    assert "Mid-trained" not in card.text
    assert "None" not in card.text


def test_the_card_says_when_the_gate_was_overruled(project: Project) -> None:
    checkpoint = project.resolve("cycle:1")
    assert "against the gate" not in model_card(project, checkpoint, "full").text
    store_verdict(project.tracker, checkpoint.id, {"passed": False, "outcome": "failed", "reason": "it lost too much"})
    text = model_card(project, project.resolve("cycle:1"), "full").text
    assert "Gate: it lost too much." in text
    assert "Promoted against the gate's verdict (failed) by " in text
    assert ": good\n" in text


def test_without_a_card_of_the_base_no_license_is_stated(project: Project) -> None:
    (Path(project.base) / "README.md").unlink()
    data = model_card(project, project.resolve("cycle:1"), "full").data
    assert data.license is None
    assert data.library_name == "transformers"
    (Path(project.base) / "README.md").write_text("---\ntitle: Mine: v2\nlicense: mit\n---\n# Base\n")
    assert model_card(project, project.resolve("cycle:1"), "full").data.license is None, "which is no YAML"


@pytest.mark.parametrize(("small", "dtype"), [(0, torch.bfloat16), (10**9, torch.float32)])
def test_full_weights_of_a_large_model_are_exported_in_bfloat16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int, dtype: torch.dtype
) -> None:
    """In which they were measured; they are trained, and stored, in float32."""
    monkeypatch.setattr(model_loading, "SMALL_MODEL_PARAMETERS", small)
    monkeypatch.setattr(model_loading, "has_bfloat16", lambda: True)
    trained = load_student(str(BASE), dtype=torch.float32)
    save_student(trained, tmp_path / "trained", {})
    project = Project.open(tmp_path / "project", str(BASE))
    id = project.tracker.checkpoint(project.id, "external", str(tmp_path / "trained"))
    checkpoint = project.reader.checkpoint(id)
    assert checkpoint
    export_checkpoint(project, checkpoint, tmp_path / "exported", adapter=False)
    assert load_student(str(tmp_path / "exported"), dtype="auto").head.weight.dtype == dtype


def test_an_export_has_what_a_base_that_reads_pictures_needs(tmp_path: Path) -> None:
    base = shutil.copytree(BASE, tmp_path / "base")
    (base / "preprocessor_config.json").write_text('{"size": 224}')
    project, to = Project.open(tmp_path / "project", str(base)), tmp_path / "exported"
    _ = project.id  # creates it
    assert answer(project, "export", "base", "--to", to)["kind"] == "full"
    assert (to / "preprocessor_config.json").read_text() == '{"size": 224}'
    assert _processor_files(str(tmp_path / "gone")) == []


def test_an_export_to_a_full_disk_is_one_sentence_and_can_be_repeated(tmp_path: Path) -> None:
    project, to = Project.open(tmp_path, str(BASE)), tmp_path / "exported"
    _ = project.id  # creates it
    with full_disk(2**20):
        error = answer(project, "export", "base", "--to", to)["error"]
    assert error == f"Cannot write to {to} (File too large). Name another folder with --to, or free space there."
    assert not list(tmp_path.glob("exported*"))
    assert answer(project, "export", "base", "--to", to)["kind"] == "full"
    assert "base_model" in (to / "README.md").read_text()
