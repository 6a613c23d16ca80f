from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.synthetic.questions import Draft, parse_drafts


def test_json_is_read_anywhere_in_the_reply() -> None:
    reply = (
        'Sure!\n```json\n{"question": "Who?", "answer": "Ada"}\n{"question": "When?", "answer": 1843}\n'
        '{"broken\n[{"question": "Where?", "answer": " London "}]{"question": 1, "answer": "x"}```'
    )
    assert parse_drafts(reply) == [Draft("Who?", "Ada"), Draft("When?", "1843"), Draft("Where?", "London")]


def test_lines_of_question_and_answer_are_read() -> None:
    reply = "1. **Question 1:** Who wrote it?\n   **Answer:** Ada\n\nQ: When was it?\nA: 1843\n"
    assert parse_drafts(reply) == [Draft("Who wrote it?", "Ada"), Draft("When was it?", "1843")]
    assert parse_drafts("There is nothing to ask.") == []


@settings(deadline=None)
@given(st.text(st.sampled_from('{}[]":, qQaA1\nuestion')))
def test_any_reply_can_be_read(reply: str) -> None:
    assert isinstance(parse_drafts(reply), list)
