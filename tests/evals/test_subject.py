import pytest

from evals.subject import spoken
from tests.evals.fakes import speaker


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
    assert spoken(text) == said


def test_thinking_is_off_where_the_template_can() -> None:
    plain, thinker = speaker("a"), speaker("a", template="has enable_thinking")
    assert plain.prompt_text("hi") == "<user>hi<assistant>"
    assert thinker.prompt_text("hi") == "<user>hi<no thinking><assistant>"
    for subject in (plain, thinker):
        assert subject.chat.prompt("hi") == list(map(ord, subject.prompt_text("hi")))


def test_answers_come_in_order_greedily_and_say_whether_they_ended() -> None:
    subject = speaker(lambda asked: asked * 3)
    answers = subject.answer(["ab", [{"role": "system", "content": "s"}, {"role": "user", "content": "abcdef"}]], 10)
    assert [(a.text, a.finished) for a in answers] == [("ababab", True), ("abcdefabcd", False)]
