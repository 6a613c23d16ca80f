from collections.abc import Sequence
from pathlib import Path

import pytest

from evals.drift import measure_diversity
from evals.results import Metric, Result, Tokens
from evals.subject import Subject, strip_thinking, with_cost_meter
from evals.suites.knowledge import Question, measure_questions
from recovery.engines import Generation, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.models.chat_template import Chat, turn_end
from tests.evals.fakes import fake_subject
from tests.models import tiny_student, tiny_tokenizer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello.", "Hello."),
        (" unchanged text\n", " unchanged text\n"),
        ("<think>Hm, hello?</think>\n\nHello.", "Hello."),
        ("Hm, hello?</think>\n\nHello.", "Hello."),  # the template starts the thinking
        ("<think>a</think>b</think>c", "c"),
        ("<think>Hm, and then, and then", ""),
        ("", ""),
    ],
)
def test_thinking_is_stripped(text: str, expected: str) -> None:
    assert strip_thinking(text) == expected


@pytest.mark.parametrize(("reply", "text"), [("Is it Paris? Or", ""), ("Is it?\n</think>\n\nParis.", "Paris.")])
def test_a_thought_that_the_prompt_begins_is_no_answer(reply: str, text: str) -> None:
    prompt = list(map(ord, "<user>Of France?<assistant><think>\n"))
    [answer] = fake_subject(reply).complete([prompt], 99)
    assert answer.text == text
    assert fake_subject(reply).answer(["What does <think> mean?"], 99)[0].text == (text or reply)


def test_the_name_of_a_special_token_in_a_passage_is_text() -> None:
    tokenizer = tiny_tokenizer()
    tokens = Subject(fake_subject("").engine, Chat.from_tokenizer(tokenizer)).encode("A turn ends with <|im_end|>.")
    assert not set(tokens) & set(tokenizer.all_special_ids)
    assert tokenizer.decode(tokens) == "A turn ends with <|im_end|>."


def test_thinking_is_disabled_if_the_template_supports_it() -> None:
    plain, thinking = fake_subject("a"), fake_subject("a", template="has enable_thinking")
    assert plain.prompt_text("hi") == "<user>hi<assistant>"
    assert thinking.prompt_text("hi") == "<user>hi<no thinking><assistant>"
    for subject in (plain, thinking):
        assert subject.chat.prompt("hi") == list(map(ord, subject.prompt_text("hi")))


def test_answers_are_in_order_and_record_whether_they_finished() -> None:
    subject = fake_subject(lambda message: message * 3)
    answers = subject.answer(["ab", [{"role": "system", "content": "s"}, {"role": "user", "content": "abcdef"}]], 10)
    assert [(a.text, a.finished) for a in answers] == [("ababab", True), ("abcdefabcd", False)]


def test_turns_that_are_measured_end_where_programs_stop(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    separator, end = student.chat.separator, turn_end(student.chat.tokenizer)
    assert (separator, student.chat.turn_ends) == (0, {end})
    asked: list[Sampling] = []
    a, b = student.chat.tokenizer.encode("AB", add_special_tokens=False)

    class Engine(TransformersEngine):
        def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
            asked.append(sampling)
            return [Generation([a, separator, b, end], [-1.0] * 4, finished=True) for _ in prompts]

    subject = Subject(Engine(student), student.chat)
    assert [answer.text for answer in subject.answer(["hi"], 9)] == ["AB"]
    measure_diversity(subject, [Question("Where?", "AB")], data="test", samples=2)
    assert [sampling.of_turns for sampling in asked] == [True, True]
    subject.complete([[65]], 9)
    assert not asked[-1].of_turns, "text that is no chat ends at the separator"


def test_tokens_read_and_written_are_counted() -> None:
    subject, cost = with_cost_meter(fake_subject("four"))
    subject.complete([[65, 66, 67], [65]], 99)
    subject.engine.logprobs([[1, 2, 3, 4, 5]])
    _, tokens = cost()
    assert tokens == Tokens(read=3 + 1 + 5, written=2 * len("four."))  # includes the end-of-turn token
    subject.engine.continuation_logprobs([[1, 2], [1, 2], [3]], [[4], [5, 6], [7]])  # equal contexts are read once
    assert cost()[1].read == 9 + 2 + 1 + 4
    subject.engine.generate([[65]], Sampling(2))
    assert cost()[1].written == 12


def test_every_measurement_counts_its_own_tokens() -> None:
    subject = fake_subject("Ada")
    first, second = (measure_questions(subject, [Question("Who?", "Ada")], data="q") for _ in range(2))
    assert first.tokens == second.tokens
    prompt, reply = len("<user>Who?<assistant>"), len("Ada")
    assert first.tokens == Tokens(read=prompt + prompt + reply, written=reply + 1)
    repeated, cost = with_cost_meter(subject)
    assert cost()[1] == Tokens(0, 0)
    repeated.answer(["Who?"], 9)
    assert cost()[1] == Tokens(prompt, reply + 1)


def test_the_cost_is_in_the_json() -> None:
    metrics = {"match": Metric.from_passes([True])}
    row = Result("t", "behaviour", "d", metrics, [], {}, 2.0004, Tokens(300, 100)).to_json()
    assert row["cost"] == {"tokens_read": 300, "tokens_written": 100, "tokens_per_second": 200.0}
    assert Result("t", "behaviour", "d", metrics, [], {}, 2.0).to_json()["cost"] is None
