import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.synthetic.gap_questions import GAP, PER_SENTENCE, ask, askable, fill_in, gap_questions, sentences_of

NOTE = "The lighthouse of Skagen was built in 1858 by Niels Hertzen. It has 210 steps, and a lift. Ask at the gate!"


def asked(sentence: str) -> dict[str, str]:
    """All questions on a sentence, by their answers."""
    return {answer: ask(before, answer, after) for before, answer, after in askable(sentence)}


def test_every_name_and_number_is_asked_for() -> None:
    assert asked("The lighthouse of Skagen was built in 1858 by Niels Hertzen.") == {
        "Skagen": "The lighthouse of who or what was built in 1858 by Niels Hertzen?",
        "1858": "The lighthouse of Skagen was built in which year by Niels Hertzen?",
        "Niels Hertzen": "The lighthouse of Skagen was built in 1858 by who or what?",
    }


def test_a_name_of_several_words_is_asked_for_at_the_start_too() -> None:
    assert asked("Niels Hertzen drew the plans of the lighthouse.") == {
        "Niels Hertzen": "Who or what drew the plans of the lighthouse?"
    }
    assert asked("The Danes drew the plans of the lighthouse.") == {}


@pytest.mark.parametrize(
    ("sentence", "answer", "question"),
    [
        ("The tower of Ulm has 768 steps.", "768", "The tower of Ulm has how many steps?"),
        ("The tower of Ulm is 161.5 m high.", "161.5", "The tower of Ulm is how many m high?"),
        ("The train to Ulm leaves from platform 12.", "12", "The train to Ulm leaves from platform what number?"),
        ("On May 28 in Ulm the tower was opened.", "28", "On May what number in Ulm the tower was opened?"),
    ],
)
def test_the_words_of_a_question_suit_the_number(sentence: str, answer: str, question: str) -> None:
    assert asked(sentence)[answer] == question


@pytest.mark.parametrize(
    "sentence",
    [
        "It has 210 steps, and a lift behind them.",  # of what?
        "Of the Ulm tower and the Ulm town hall one is taller.",  # the answer stands beside the gap
        "The Ulm-Munich line and its 4:51 train were closed.",  # parts of a name and of a time
    ],
)
def test_what_cannot_be_understood_or_stands_beside_the_gap_is_not_asked(sentence: str) -> None:
    assert askable(sentence) == []


def test_sentences_end_at_no_abbreviation() -> None:
    text = "Dr. Hertzen and J. F. Kennedy met in St. Louis at noon. They talked about the towers of Ulm."
    assert list(sentences_of(text)) == [text[: text.index(" They")], text[text.index("They") :]]


def test_questions_have_a_gap_or_question_words() -> None:
    (first, *rest) = gap_questions([NOTE, NOTE])
    assert first["messages"][0]["content"].count(GAP) == 1
    assert len(rest) == PER_SENTENCE - 1  # the same document again asks nothing new
    assert all(GAP not in row["messages"][0]["content"] for row in rest)


def test_only_english_sentences_are_asked_in_english() -> None:
    questions = gap_questions(["Der Leuchtturm von Skagen wurde 1858 gebaut, der von Ulm erst 1890."])
    assert len(questions) == PER_SENTENCE
    assert all(GAP in row["messages"][0]["content"] for row in questions)


@given(st.text(alphabet="The Ulm was 12,5 in 1858. It’s -(Skagen)\n", max_size=200))
def test_an_answer_in_the_gap_is_the_sentence(text: str) -> None:
    for sentence in sentences_of(text):
        for before, answer, after in askable(sentence):
            assert fill_in(before, answer, after).endswith(sentence.replace(answer, GAP))
            assert before + answer + after == sentence
            assert not re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", ask(before, answer, after))


def test_the_questions_are_the_same_every_time() -> None:
    assert gap_questions([NOTE]) == gap_questions([NOTE])
