import pytest

from evals.subject import strip_thinking
from tests.evals.fakes import fake_subject


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
