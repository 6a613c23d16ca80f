import os
import subprocess
import sys
from collections import Counter, defaultdict

from evals.splits import split_of
from evals.subject import Subject
from evals.suites.general import GeneralQuestion, _parse, _sections, general_questions, measure_general
from evals.suites.suite_measurement import measure, suite_tasks
from tests.evals.fakes import fake_subject

QUESTIONS = general_questions()


def subject_that_prefers(choice: dict[str, str]) -> Subject:
    """A subject to which every token is likelier in the given answer to its question, by the question's text."""
    starts = {question.text: question.reply_start for question in QUESTIONS}

    def likelihood(text: str) -> float:
        question, _, reply = text.removeprefix("<user>").partition("<assistant>")
        given = reply.removeprefix(starts.get(question, reply))
        return -0.1 if f" {sentence_end(choice.get(question, ''))}".startswith(given) else -5.0

    return fake_subject("", likelihood=likelihood)


def sentence_end(choice: str) -> str:
    return choice if choice.endswith(".") else f"{choice}."


def distractor(question: GeneralQuestion) -> str:
    return next(choice for choice in question.choices if choice != question.answer)


def test_there_are_about_600_questions_of_many_kinds_and_no_fact_appears_twice() -> None:
    assert 600 <= len(QUESTIONS) <= 700
    assert len({question.key for question in QUESTIONS}) == len(QUESTIONS)
    kinds = Counter(question.kind for question in QUESTIONS)
    assert len(kinds) >= 10
    assert min(kinds.values()) >= 20
    for kind, lines in _sections().items():
        facts = [line.partition(" = ")[0].casefold() for line in lines if " = " in line]
        assert len(set(facts)) == len(facts), kind


def test_every_question_has_four_different_choices_of_which_one_is_right() -> None:
    for question in QUESTIONS:
        assert len(set(question.choices)) == 4
        assert question.choices.count(question.answer) == 1
        for text in (question.text, question.reply_start, *question.choices):
            assert text == text.strip() != ""
            assert not {"=", "|", "~", "{", "}"} & set(text.removesuffix(" =")), text


def test_no_wrong_choice_is_right() -> None:
    right: dict[str, set[str]] = defaultdict(set)
    for lines in _sections().values():
        phrasings = [line for line in lines if " = " not in line]
        for fact in (_parse(line, phrasings) for line in lines if " = " in line):
            right[fact.text] |= {fact.answer, *fact.also_right}
            assert fact.answer not in fact.wrong
            assert len(fact.wrong) in (0, 3)
    for question in QUESTIONS:
        assert right[question.text] & set(question.choices) == {question.answer}
    [norway] = [question for question in QUESTIONS if question.kind == "currencies" and "Norway" in question.text]
    assert not {"krona", "koruna"} & set(norway.choices)


def test_what_is_right_in_arithmetic_can_be_computed() -> None:
    sums = [question for question in QUESTIONS if question.kind == "arithmetic"]
    assert len(sums) == 60
    for question in sums:
        first, sign, second = question.reply_start.removesuffix(" =").split()
        value = {"+": int(first) + int(second), "-": int(first) - int(second), "×": int(first) * int(second)}[sign]
        assert question.answer == str(value)


def test_the_right_choice_may_stand_anywhere_and_any_start_of_the_list_has_all_kinds() -> None:
    positions = Counter(question.choices.index(question.answer) for question in QUESTIONS)
    assert all(0.15 < positions[i] / len(QUESTIONS) < 0.35 for i in range(4))
    assert {question.kind for question in QUESTIONS[:200]} == {question.kind for question in QUESTIONS}


def test_the_questions_are_the_same_in_every_process() -> None:
    code = "from evals.suites.general import general_questions; print(general_questions())"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "1"}  # here it is random
    output = subprocess.check_output([sys.executable, "-c", code], env=environment)
    assert output == f"{QUESTIONS}\n".encode()


def test_a_subject_that_prefers_the_right_answers_scores_one_and_any_other_zero() -> None:
    result = measure_general(subject_that_prefers({question.text: question.answer for question in QUESTIONS}))
    assert (result.suite, result.task, result.data) == ("retention", "general", "general")
    assert (result.headline.value, result.headline.n) == (1.0, len(QUESTIONS))
    assert result.is_pass_rate
    wrong = {question.text: distractor(question) for question in QUESTIONS}
    result = measure_general(subject_that_prefers(wrong))
    assert result.headline.value == 0.0
    assert {item.prompt: item.answer for item in result.items} == wrong


def test_a_subject_without_any_preference_is_right_by_chance() -> None:
    for likelihood in (-1000.0, float("nan")):
        result = measure_general(fake_subject("", likelihood=lambda text, value=likelihood: value))
        assert result.headline.value < 0.45


def test_every_kind_has_its_metric() -> None:
    known = {q.text: q.answer if q.kind == "capitals" else distractor(q) for q in QUESTIONS}
    result = measure_general(subject_that_prefers(known))
    assert next(iter(result.metrics)) == "match"
    assert result.metrics["match/capitals"].value == 1.0
    assert result.metrics["match/authors"].value == 0.0
    for kind, count in Counter(item.verdicts["kind"] for item in result.items).items():
        assert result.metrics[f"match/{kind}"].n == count


def test_it_is_the_retention_of_a_base_that_names_none() -> None:
    for suites in ({}, {"behaviour": "lab"}, {"retention": "general"}):
        assert suite_tasks("retention", suites) == ["general"]
    subject = fake_subject("", likelihood=lambda text: -1.0)
    [result] = measure(subject, "retention")
    assert (result.suite, result.task) == ("retention", "general")
    assert [item.key for item in result.items] == [question.key for question in QUESTIONS]
    [few] = measure(subject, "retention", limit=50, secondary_limit=20)
    assert [item.key for item in few.items] == [question.key for question in QUESTIONS[:50]]
    [probe], [final] = (measure(subject, "retention", split=split) for split in ("probe", "final"))
    assert {split_of(item.key) for item in probe.items} == {"probe"}
    assert len(probe.items) + len(final.items) == len(QUESTIONS)
    assert len(probe.items) > 80
