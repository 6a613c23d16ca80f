from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.synthetic.questions import Draft, drafts_in


def test_json_is_found_wherever_it_stands() -> None:
    reply = (
        'Sure!\n```json\n{"question": "Who?", "answer": "Ada"}\n{"question": "When?", "answer": 1843}\n'
        '{"broken\n[{"question": "Where?", "answer": " London "}]{"question": 1, "answer": "x"}```'
    )
    assert drafts_in(reply) == [Draft("Who?", "Ada"), Draft("When?", "1843"), Draft("Where?", "London")]


def test_lines_will_do_too() -> None:
    reply = "1. **Question 1:** Who wrote it?\n   **Answer:** Ada\n\nQ: When was it?\nA: 1843\n"
    assert drafts_in(reply) == [Draft("Who wrote it?", "Ada"), Draft("When was it?", "1843")]
    assert drafts_in("There is nothing to ask.") == []


@settings(deadline=None)
@given(st.text(st.sampled_from('{}[]":, qQaA1\nuestion')))
def test_any_reply_can_be_read(reply: str) -> None:
    assert isinstance(drafts_in(reply), list)
