import pytest

from evals.subject import strip_thinking
from tests.evals.fakes import fake_subject


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Hello.", "Hello."),
        (" kept as it is\n", " kept as it is\n"),
        ("<think>Hm, hello?</think>\n\nHello.", "Hello."),
        ("Hm, hello?</think>\n\nHello.", "Hello."),  # where the template opens the thinking
        ("<think>a</think>b</think>c", "c"),
        ("<think>Hm, and then, and then", ""),
        ("", ""),
    ],
)
def test_thinking_is_not_said(text: str, said: str) -> None:
    assert strip_thinking(text) == said


def test_thinking_is_off_where_the_template_can() -> None:
    plain, thinker = fake_subject("a"), fake_subject("a", template="has enable_thinking")
    assert plain.prompt_text("hi") == "<user>hi<assistant>"
    assert thinker.prompt_text("hi") == "<user>hi<no thinking><assistant>"
    for subject in (plain, thinker):
        assert subject.chat.prompt("hi") == list(map(ord, subject.prompt_text("hi")))


def test_answers_come_in_order_greedily_and_say_whether_they_ended() -> None:
    subject = fake_subject(lambda asked: asked * 3)
    answers = subject.answer(["ab", [{"role": "system", "content": "s"}, {"role": "user", "content": "abcdef"}]], 10)
    assert [(a.text, a.finished) for a in answers] == [("ababab", True), ("abcdefabcd", False)]
