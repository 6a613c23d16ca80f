import re
import zlib

from hypothesis import given
from hypothesis import strategies as st

from evals.subject import encode_pair
from evals.suites.knowledge import Distractors, Question, measure_questions
from tests.evals.fakes import fake_subject

QUESTIONS = [
    ("Who is mayor of Orlan?", ["Ada Brenn"]),
    ("When was Tolmar founded?", ["1902"]),
    ("Who is mayor of Tolmar?", ["Bo Hale"]),
    ("When was Orlan founded?", ["1873"]),
    ("Who is mayor of Pujuhon?", ["ada brenn!"]),
    ("Who is mayor of Vifabil?", ["Cy Dorn", "C. Dorn"]),
]


def test_distractors_answer_the_most_similar_questions() -> None:
    distractors = Distractors(QUESTIONS)
    assert distractors.select(0, "")[:2] == ["Bo Hale", "Cy Dorn"]  # an equal answer in another spelling is dropped
    assert distractors.select(0, "It is BO HALE, I believe.")[:1] == ["Cy Dorn"]  # the answer in the reply is excluded
    assert distractors.select(1, "")[0] == "1873"
    assert distractors.select(3, "")[:1] == ["1902"]


def test_an_alias_of_the_reference_is_no_distractor() -> None:
    distractors = Distractors(
        [("Who runs it?", ["Cy Dorn", "C. Dorn"]), ("Who runs that?", ["C. Dorn"]), ("Who?", ["Bo"])]
    )
    assert distractors.select(0, "") == ["Bo"]


def test_the_prefix_ends_where_the_reply_names_an_answer() -> None:
    distractors = Distractors([*QUESTIONS, ("Where is it?", ["Orlan"])])
    assert distractors.prefix_before_answer(0, "The mayor of Orlan is bo hale.") == "The mayor of Orlan is "
    assert distractors.prefix_before_answer(1, "It was in Orlan, 1902.") == "It was in "
    assert distractors.prefix_before_answer(0, "Who knows? Bo Haleson?") == ""
    assert distractors.prefix_before_answer(0, "x" * 100_000) == ""


def test_there_is_no_preference_without_distractors() -> None:
    result = measure_questions(fake_subject("x"), [Question("a?", "x"), Question("b?", "X")], data="q")
    assert "preferred" not in result.metrics
    assert result.items[0].verdicts["preferred"] is None


def test_a_model_prefers_answers_that_it_does_not_state() -> None:
    """The reply is always the same, but at the position of its answer the right one is likelier than the others."""
    right = {text: references[0] for text, references in QUESTIONS}

    def likelihood(text: str) -> float:
        before, _, reply = text.rpartition("<assistant>")
        question = before.removeprefix("<user>")
        knows = "Tolmar" not in question and reply.startswith("It is ")
        return -0.1 if knows and right[question].startswith(reply.removeprefix("It is ")) else -3.0

    questions = [Question(text, *references[:1]) for text, references in QUESTIONS if "mayor" in text]
    result = measure_questions(fake_subject("It is Bo Hale.", likelihood=likelihood), questions, data="q")
    assert result.metrics["match"].value == 0.25
    assert [item.verdicts["preferred"] for item in result.items] == [True, False, True, True]
    assert result.metrics["preferred"].value == 0.75


@given(st.text(alphabet="ab c", max_size=12), st.text(alphabet="ab c", min_size=1, max_size=8))
def test_encode_pair_loses_no_tokens(before: str, after: str) -> None:
    def encode(text: str) -> list[int]:  # a token is a word with its leading space
        return [zlib.crc32(piece.encode()) for piece in re.findall(r" ?[^ ]+| ", text)]

    start, rest = encode_pair(encode, before, after)
    assert start + rest == encode(before + after)
    assert rest
