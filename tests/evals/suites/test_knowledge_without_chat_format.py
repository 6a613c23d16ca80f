"""Likelihoods show knowledge that graded replies miss.

A model is trained on new documents for a few steps. It answers few questions on them, but their answers, and passages
that were held out, have become likelier."""

import pytest

from evals.results import Metric, Result
from evals.subject import Subject
from evals.suites.knowledge import Question, measure_questions
from evals.suites.training_texts import measure_bits_per_byte, measure_cloze
from recovery.engines.transformers import TransformersEngine
from recovery.lab import BASE, World, make_world
from recovery.models.students import Student, load_student
from recovery.objectives import CrossEntropy
from recovery.signals import Labels
from recovery.states import Documents
from recovery.train import Plan, train

pytestmark = pytest.mark.slow
STEPS = 8


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(5, "quick")


@pytest.fixture(scope="module")
def clean() -> Subject:
    return subject(load_student(str(BASE), frozen=True))


@pytest.fixture(scope="module")
def damaged(world: World) -> Subject:
    student = load_student(str(BASE))
    encode, end = student.chat.tokenizer.encode, student.chat.tokenizer.pad_token_id
    documents = [encode(document.text, add_special_tokens=False) for document in world.documents(rounds=10)]
    states = Documents(documents, end, window=256, rows=16)
    for _ in train(student, states, Labels(), CrossEntropy(), Plan(STEPS, 1e-3, warmup=2)):
        pass
    return subject(student)


def subject(student: Student) -> Subject:
    return Subject(TransformersEngine(student), student.chat)


def likelihood_gain(before: Result, after: Result) -> Metric:
    pairs = zip(before.items, after.items, strict=True)
    return Metric.from_values([b.verdicts["answer_logprob"] - a.verdicts["answer_logprob"] for a, b in pairs])


def test_likelihoods_show_new_knowledge_that_answers_do_not(world: World, clean: Subject, damaged: Subject) -> None:
    questions = [Question(question.question, question.answer) for question in world.questions()]
    before = measure_questions(clean, questions, data="world", max_new_tokens=48)
    after = measure_questions(damaged, questions, data="world", max_new_tokens=48)
    assert after.metrics["match"].value < 0.4
    assert likelihood_gain(before, after).ci95[0] > 0


def test_held_out_passages_show_new_knowledge(world: World, clean: Subject, damaged: Subject) -> None:
    held_out = [document.text for document in world.documents(rounds=1, seed=77)]
    assert (
        measure_bits_per_byte(damaged, held_out, data="passages").headline.ci95[1]
        < measure_bits_per_byte(clean, held_out, data="passages").headline.ci95[0]
    )
    before, after = measure_cloze(clean, held_out, data="passages"), measure_cloze(damaged, held_out, data="passages")
    assert likelihood_gain(before, after).ci95[0] > 0
    assert after.headline.value > before.headline.value
