"""Counting what a measurement would compute, without a model."""

from evals.counting_engine import Replies, Workload, count_work
from evals.subject import Subject
from evals.suites.knowledge import Question, measure_questions
from recovery.engines import Sampling
from tests.evals.fakes import fake_subject

QUESTIONS = [Question("Who?", "Ada"), Question("Where is it?", "Ulm"), Question("When was it?", "1836")]


def test_a_measurement_is_counted_as_it_would_be_asked_for() -> None:
    chat = fake_subject("Ada").chat
    workload = count_work(chat, lambda subject: measure_questions(subject, QUESTIONS, data="x", max_new_tokens=12))
    prompts = [len(chat.prompt(question.text)) for question in QUESTIONS]
    assert workload.replies == [Replies(3, sum(prompts), 12)]
    answers = sum(len(question.answer) for question in QUESTIONS)
    assert workload.scored_texts >= 3
    assert workload.scored_tokens >= sum(prompts) + answers
    assert workload.items == 3 + workload.scored_texts


def test_the_kept_prompts_are_those_of_the_largest_call() -> None:
    def measure(subject: Subject) -> None:
        subject.engine.generate([[1]] * 10, Sampling(4))
        subject.engine.generate([[n] for n in range(40)], Sampling(4))
        subject.engine.generate([[7]] * 3, Sampling(8))

    workload = count_work(fake_subject("").chat, measure)
    assert workload.prompts == [[n] for n in range(0, 40, 5)]


def test_contexts_that_are_scored_together_are_counted_once() -> None:
    chat = fake_subject("").chat
    workload = count_work(
        chat, lambda subject: subject.engine.continuation_logprobs([[1, 2, 3]] * 4, [[4], [5], [6], [7, 8]])
    )
    assert (workload.scored_texts, workload.scored_tokens) == (1, 3 + 5)


def test_a_workload_can_be_stored() -> None:
    workload = Workload([Replies(3, 30, 12)], 100, 4, [[1, 2]], 0.5)
    assert Workload.from_json(workload.as_json()) == workload
