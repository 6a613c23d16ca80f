from pathlib import Path

import pytest

from evals.results import Result, headlines
from evals.subject import Subject
from evals.suites import lab
from evals.suites import suite_measurement as suites
from evals.suites.suite_measurement import measure
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.students import checkpoint_metadata, load_student
from tests.chats import write_jsonl
from tests.evals.fakes import fake_subject

LAB = {"behaviour": "lab", "retention": "lab"}


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write_jsonl(
        tmp_path / "questions.jsonl", [{"question": f"What is {i}?", "answer": str(i)} for i in range(5)]
    )


def task_ids(results: list[Result]) -> list[tuple[str, str, str]]:
    return [(result.suite, result.task, result.data) for result in results]


def test_all_measures_every_suite_with_data(questions: Path) -> None:
    subject = fake_subject(lambda message: "I can't share that. 3")
    results = measure(subject, limit=4, questions=questions, suites=LAB)
    assert task_ids(results) == [
        ("behaviour", "ifeval", "lab"),
        ("behaviour", "refusals", "lab"),
        ("knowledge", "closed_book", "questions.jsonl"),
        ("retention", "arithmetic", "lab"),
        ("retention", "own_world", "lab"),
    ]
    assert all(len(result.items) == 4 for result in results)
    assert headlines(results)["knowledge"] == 0.25
    assert results[1].metrics["match"].value == 1.0
    assert headlines(measure(subject, limit=4, suites=LAB))["knowledge"] is None


def test_questions_replace_the_bases_own_knowledge_suite(questions: Path) -> None:
    own = LAB | {"knowledge": "lab"}
    [result] = measure(fake_subject("a"), "knowledge", limit=4, suites=own)
    assert task_ids([result]) == [("knowledge", "closed_book", "lab")]
    [result] = measure(fake_subject("a"), "knowledge", limit=4, questions=questions, suites=own)
    assert task_ids([result]) == [("knowledge", "closed_book", "questions.jsonl")]


def test_the_secondary_limit_applies_to_retention_and_refusals_unless_the_limit_is_high() -> None:
    results = measure(fake_subject("a"), limit=8, secondary_limit=4, suites=LAB)
    assert {r.task: len(r.items) for r in results} == {"ifeval": 8, "refusals": 4, "arithmetic": 4, "own_world": 4}
    assert all(len(r.items) == 3 for r in measure(fake_subject("a"), limit=3, secondary_limit=4, suites=LAB))
    high = measure(fake_subject("a"), "retention", limit=12, secondary_limit=4, suites=LAB)
    assert [len(r.items) for r in high] == [6, 6]


def test_the_users_prompts_replace_the_bases_suite(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"key": 1, "prompt": "Hi", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}')
    [result] = measure(fake_subject("hello"), "behaviour", ifeval_data=file, suites=LAB)
    assert (result.data, result.headline.value, result.settings["max_new_tokens"]) == ("mine.jsonl", 1.0, 1280)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"suite": "unknown"}, "no suite 'unknown'. Choose from behaviour, .*, gsm8k, .* or all"),
        ({"suite": "gsm8k", "suites": {"gsm8k": ""}}, "leaves the suite gsm8k empty"),
        ({"suite": "knowledge"}, "--questions"),
        ({"suite": "retention", "suites": {"retention": ""}}, "leaves the suite retention empty"),
        ({"suites": {"behaviour": "", "retention": " , "}}, "leaves all suites empty"),
        ({"suite": "behaviour", "limit": 0}, "at least 1"),
    ],
)
def test_errors_say_what_is_missing(arguments: dict, message: str) -> None:
    with pytest.raises(RecoverError, match=message):
        measure(fake_subject("a"), **arguments)


def test_the_labs_reference_answers_pass_the_labs_suites() -> None:
    """The generators and the graders agree on what is right."""
    from recovery import lab as world

    answers = {q.question: q.answer for q in world.arithmetic(lab.SEED, 50, "heldout")}
    assert (
        lab.measure_arithmetic(fake_subject(lambda message: f"So:\nAnswer: {answers[message]}"), 50).headline.value
        == 1.0
    )
    replies = {q.question: f"That is {q.answer}." for q in world.own_world().questions()}
    assert lab.measure_own_world(fake_subject(replies), 100).metrics["match"].value == 1.0
    assert lab.measure_refusals(fake_subject("Sorry, but I can't share that."), 20).metrics["match"].value == 1.0
    assert lab.measure_refusals(fake_subject("It is 1234."), 20).metrics["match"].value == 0.0


def test_public_settles_which_prompts_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    doc = {"key": 9, "prompt": "Hi", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"num_words": None}]}
    for docs, public, data in (([doc], False, "lab-natural"), ([doc], True, "public"), (None, None, "lab-natural")):
        monkeypatch.setattr(suites, "public_ifeval", lambda docs=docs: docs)
        [result] = measure(fake_subject("a"), "behaviour", limit=1, public=public)
        assert result.data == data
    assert "public" in result.settings["instead_of"]
    with pytest.raises(RecoverError, match="unavailable now"):
        measure(fake_subject("a"), "behaviour", limit=1, public=True)
    assert suites.is_public_ifeval_available({}) is False
    assert suites.is_public_ifeval_available(LAB) is None


def test_the_base_is_measured_by_its_own_suites() -> None:
    base, suites = load_student(str(BASE), frozen=True), checkpoint_metadata(str(BASE))["suites"]
    results = measure(Subject(TransformersEngine(base), base.chat), limit=16, suites=suites)
    tasks = [(result.suite, result.task) for result in results]
    assert ("behaviour", "ifeval") in tasks
    assert ("retention", "arithmetic") in tasks
    assert {result.data for result in results} == {"lab"}
    assert (headlines(results)["behaviour"] or 0) > 0.15
    ifeval, refusals = (result for result in results if result.suite == "behaviour")
    assert ifeval.metrics["finished"].value > 0.7
    assert refusals.metrics["match"].value > 0.7
