import json
from pathlib import Path

import pytest

from evals.results import Result, headlines
from evals.suites import lab
from evals.suites import measure as suites
from evals.suites.measure import measure
from recovery.errors import RecoverError
from tests.evals.fakes import fake_subject

LAB = {"behaviour": "lab", "retention": "lab"}


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(json.dumps({"question": f"What is {i}?", "answer": str(i)}) for i in range(5)))
    return file


def named(results: list[Result]) -> list[tuple[str, str, str]]:
    return [(result.suite, result.task, result.data) for result in results]


def test_all_measures_all_there_is_data_for(questions: Path) -> None:
    subject = fake_subject(lambda asked: "I can't share that. 3")
    results = measure(subject, limit=4, questions=questions, suites=LAB)
    assert named(results) == [
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


def test_a_base_may_be_asked_about_its_own_world_until_questions_are_brought(questions: Path) -> None:
    own = LAB | {"knowledge": "lab"}
    [result] = measure(fake_subject("a"), "knowledge", limit=4, suites=own)
    assert named([result]) == [("knowledge", "closed_book", "lab")]
    [result] = measure(fake_subject("a"), "knowledge", limit=4, questions=questions, suites=own)
    assert named([result]) == [("knowledge", "closed_book", "questions.jsonl")]


def test_the_same_items_every_time_so_that_checkpoints_can_be_paired() -> None:
    first, second = (measure(fake_subject(reply), limit=30, suites=LAB) for reply in ("a", "b"))
    for one, other in zip(first, second, strict=True):
        assert list(one.passed_by_key()) == list(other.passed_by_key())
        assert len(one.passed_by_key()) == len(one.items) > 20


def test_what_no_verdict_is_about_may_be_asked_fewer_items() -> None:
    results = measure(fake_subject("a"), limit=30, beside=4, suites=LAB)
    assert {r.task: len(r.items) for r in results} == {"ifeval": 30, "refusals": 4, "arithmetic": 4, "own_world": 4}
    assert all(len(r.items) == 3 for r in measure(fake_subject("a"), limit=3, beside=4, suites=LAB))


def test_the_users_prompts_come_before_the_bases_suite(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"key": 1, "prompt": "Hi", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}')
    [result] = measure(fake_subject("hello"), "behaviour", ifeval_data=file, suites=LAB)
    assert (result.data, result.headline.value, result.settings["max_new_tokens"]) == ("mine.jsonl", 1.0, 1280)


def test_public_prompts_out_of_reach_are_stood_in_for_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "public_ifeval", lambda: None)
    [result] = measure(fake_subject("hello"), "behaviour", limit=2)
    assert result.data == "lab"
    assert "public" in result.settings["instead_of"]


def test_public_prompts_as_the_hub_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    doc = {"key": 9, "prompt": "Hi", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"num_words": None}]}
    monkeypatch.setattr(suites, "public_ifeval", lambda: [doc, doc])
    [result] = measure(fake_subject("a, b"), "behaviour", limit=1)
    assert (result.data, result.items[0].key, result.items[0].passed) == ("public", "9", False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"suite": "manners"}, "no suite 'manners'"),
        ({"suite": "knowledge"}, "--questions"),
        ({"suite": "retention"}, "nothing to retain"),
        ({"suite": "behaviour", "limit": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_sentence(arguments: dict, says: str) -> None:
    with pytest.raises(RecoverError, match=says):
        measure(fake_subject("a"), **arguments)


def test_the_labs_own_answers_pass_the_labs_suites() -> None:
    """What the generators call right is what the graders call right."""
    from recovery import lab as world

    right = {q.question: q.answer for q in world.arithmetic(lab.SEED, 50, "heldout")}
    assert lab.arithmetic(fake_subject(lambda asked: f"So:\nAnswer: {right[asked]}"), 50).headline.value == 1.0
    told = {q.question: f"That is {q.answer}." for q in world.own_world().questions()}
    assert lab.own_world(fake_subject(told), 100).metrics["match"].value == 1.0
    assert lab.refusals(fake_subject("Sorry, but I can't share that."), 20).metrics["match"].value == 1.0
    assert lab.refusals(fake_subject("It is 1234."), 20).metrics["match"].value == 0.0


def test_what_was_begun_with_one_kind_of_prompts_goes_on_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    doc = {"key": 9, "prompt": "Hi", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"num_words": None}]}
    for reached, public, data in (([doc], False, "lab"), ([doc], True, "public"), (None, None, "lab")):
        monkeypatch.setattr(suites, "public_ifeval", lambda reached=reached: reached)
        [result] = measure(fake_subject("a"), "behaviour", limit=1, public=public)
        assert result.data == data
    with pytest.raises(RecoverError, match="out of reach now"):
        measure(fake_subject("a"), "behaviour", limit=1, public=True)
    assert suites.is_public_in_reach({}) is False
    assert suites.is_public_in_reach(LAB) is None
