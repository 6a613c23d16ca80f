"""One whole cycle on the built-in model, through the real command line, from an empty folder."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from db.verdict_lines import measure_lines
from evals.subject import Subject
from evals.suites.training_texts import measure_bits_per_byte, measure_cloze
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE
from recovery.models.students import load_student
from tests.e2e.command_line import recover
from tests.e2e.damaged_project import midtraining_of
from tests.pipelines.options import set_options

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(damaged_project: Path) -> dict[str, Any]:
    """midtrain, eval, distill, compare, in the order of the README, then what a person decides. The mix was documents
    alone, so that there is damage to repair."""
    folder = damaged_project
    results: dict[str, Any] = {"folder": folder, "midtrain": midtraining_of(folder)}
    # With one limit and without probes, each model is measured once.
    results["damaged"] = recover(folder, "eval", "cycle:1/midtrained", "--limit", 60)  # with the same questions
    few = set_options("distill.prompts=64", "distill.rows=16", "distill.probe_every=0", "gate.block=0")
    results["distill"] = recover(folder, "distill", "--teacher", "base", "--limit", 60, "--max-steps", 4, *few)
    results["compare"] = recover(
        folder, "compare", "cycle:1/midtrained", "cycle:1", "--suite", "behaviour", "--limit", 60
    )
    results["promote"] = recover(folder, "promote", "cycle:1", "--reason", "to test it")
    results["show"] = recover(folder, "show", "cycle:1")
    results["rollback"] = recover(folder, "rollback", "--reason", "back again")
    results["export"] = recover(folder, "export", "cycle:1", "--to", folder / "exported")
    return results


def test_midtraining_reports_the_checkpoint_and_the_default_base(results: dict[str, Any]) -> None:
    completed = results["midtrain"]
    assert completed.exit_code == 0, completed.stderr
    assert completed.data["cycle"] == 1
    assert completed.data["checkpoint"] == "cycle:1/midtrained"
    assert Path(completed.data["path"], "model.safetensors").is_file()
    assert "built-in lab model" in completed.stderr
    assert "--base" in completed.stderr


def test_distilling_restores_instruction_following_and_keeps_knowledge(results: dict[str, Any]) -> None:
    completed = results["distill"]
    assert completed.exit_code in (0, 3), completed.stderr
    clean, damaged, recovered = (completed.data[stage] for stage in ("clean", "damaged", "recovered"))
    assert damaged["behaviour"] < clean["behaviour"] - 0.1
    assert recovered["behaviour"] > damaged["behaviour"] + 0.1
    assert damaged["knowledge"] is not None  # the questions of midtrain are used again
    assert recovered["knowledge"] > clean["knowledge"] + 0.3
    assert completed.data["promoted"] == (completed.exit_code == 0) == completed.data["verdict"]["passed"]


def test_documents_alone_are_rejected_for_what_the_model_knew_before(results: dict[str, Any]) -> None:
    completed = results["distill"]
    assert completed.exit_code == 3, completed.stderr
    retention = completed.data["verdict"]["retention"]
    assert not retention["passed"]
    assert not retention["unsure"]
    lost = retention["tasks"]["own_world"]["lost"]
    assert lost > 10
    assert "what it knew before" in completed.data["verdict"]["reason"]
    assert f"own_world: {lost} lost, " in " ".join(measure_lines(completed.data["verdict"])[-1].details)


def test_the_cost_of_a_measurement_is_printed_and_stored(results: dict[str, Any]) -> None:
    costs = {e["task"]: e["cost"] for e in results["damaged"].data["evaluations"]}
    assert all(cost["tokens_read"] > 0 and cost["tokens_per_second"] > 0 for cost in costs.values())
    assert costs["ifeval"]["tokens_written"] >= 60
    stored = recover(results["folder"], "show", "cycle:1/midtrained").data["evaluations"]
    assert costs["ifeval"] in [e["cost"] for e in stored if e["task"] == "ifeval"]


def test_passages_and_gaps_in_them_show_what_was_learned(results: dict[str, Any]) -> None:
    passages = [file.read_text() for file in sorted((results["folder"] / "corpus/docs").glob("*"))[:12]]
    measured = []
    for path in (str(BASE), results["midtrain"].data["path"]):
        student = load_student(path, frozen=True)
        subject = Subject(TransformersEngine(student), student.chat)
        measured.append([measure(subject, passages, data="docs") for measure in (measure_bits_per_byte, measure_cloze)])
    (clean_bits, clean_gaps), (bits, gaps) = measured
    assert bits.headline.ci95[1] < clean_bits.headline.ci95[0]
    assert gaps.headline.value > clean_gaps.headline.value
    assert gaps.metrics["answer_logprob"].ci95[0] > clean_gaps.metrics["answer_logprob"].ci95[1]


def test_compare_shows_what_was_forgotten_and_recovered(results: dict[str, Any]) -> None:
    completed = results["compare"]
    assert completed.exit_code == 0, completed.stderr
    data = completed.data
    assert data["forgetting"]["first"] > data["forgetting"]["second"]
    assert data["tasks"][0]["recovered"]["value"] > 0


def test_a_person_decides_and_the_lineage_reaches_the_clean_model(results: dict[str, Any]) -> None:
    assert results["promote"].data["current"] == "cycle:1/recovered", results["promote"].stderr
    lineage = [row["checkpoint"] for row in results["show"].data["lineage"]]
    assert lineage == ["cycle:1/recovered", "cycle:1/midtrained", "base"]
    assert results["rollback"].data["current"] == "base"


def test_transformers_loads_the_exported_model(results: dict[str, Any]) -> None:
    folder = results["folder"] / "exported"
    assert results["export"].data["kind"] == "full", results["export"].stderr
    card = (folder / "README.md").read_text()
    assert "cycle:1/midtrained" in card
    assert "| clean model" in card
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    chat = [{"role": "user", "content": "Hello!"}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    output = model.generate(input_ids=prompt, max_new_tokens=30, do_sample=False)
    assert tokenizer.decode(output[0][prompt.shape[1] :], skip_special_tokens=True).strip()
