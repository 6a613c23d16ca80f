import re
import zlib

from hypothesis import given
from hypothesis import strategies as st

from evals.suites.distractors import Distractors
from evals.suites.knowledge import Question, measure_questions
from evals.token_boundaries import encode_pair
from tests.evals.fakes import fake_subject

ASKED = [
    ("Who is mayor of Orlan?", ["Ada Brenn"]),
    ("When was Tolmar founded?", ["1902"]),
    ("Who is mayor of Tolmar?", ["Bo Hale"]),
    ("When was Orlan founded?", ["1873"]),
    ("Who is mayor of Pujuhon?", ["ada brenn!"]),
    ("Who is mayor of Vifabil?", ["Cy Dorn", "C. Dorn"]),
]


def test_rivals_answer_what_is_asked_most_alike() -> None:
    rivals = Distractors(ASKED)
    assert rivals.of(0, "", 2) == ["Bo Hale", "Cy Dorn"]  # not the same answer in other letters
    assert rivals.of(0, "It is BO HALE, I believe.", 1) == ["Cy Dorn"]  # what it said beats all others by being said
    assert rivals.of(1, "", 2)[0] == "1873"
    assert rivals.of(3, "", 1) == ["1902"]


def test_a_reference_by_another_name_is_no_rival() -> None:
    rivals = Distractors([("Who runs it?", ["Cy Dorn", "C. Dorn"]), ("Who runs that?", ["C. Dorn"]), ("Who?", ["Bo"])])
    assert rivals.of(0, "") == ["Bo"]


def test_an_answer_is_asked_for_where_the_reply_names_one() -> None:
    rivals = Distractors([*ASKED, ("Where is it?", ["Orlan"])])
    assert rivals.before_the_answer(0, "The mayor of Orlan is bo hale.") == "The mayor of Orlan is "
    assert rivals.before_the_answer(1, "It was in Orlan, 1902.") == "It was in "
    assert rivals.before_the_answer(0, "Who knows? Bo Haleson?") == ""
    assert rivals.before_the_answer(0, "x" * 100_000) == ""


def test_where_all_answers_are_alike_there_is_no_rival() -> None:
    result = measure_questions(fake_subject("x"), [Question("a?", "x"), Question("b?", "X")], data="q")
    assert "preferred" not in result.metrics
    assert result.items[0].verdicts["preferred"] is None


def test_it_knows_what_it_does_not_say() -> None:
    """It names the same one whatever it is asked; yet in that very place the right one is likelier than others."""
    right = {text: references[0] for text, references in ASKED}

    def likelihood(text: str) -> float:
        before, _, said = text.rpartition("<assistant>")
        question = before.removeprefix("<user>")
        knows = "Tolmar" not in question and said.startswith("It is ")
        return -0.1 if knows and right[question].startswith(said.removeprefix("It is ")) else -3.0

    questions = [Question(text, *references[:1]) for text, references in ASKED if "mayor" in text]
    result = measure_questions(fake_subject("It is Bo Hale.", likelihood=likelihood), questions, data="q")
    assert result.metrics["match"].value == 0.25
    assert [item.verdicts["preferred"] for item in result.items] == [True, False, True, True]
    assert result.metrics["preferred"].value == 0.75


@given(st.text(alphabet="ab c", max_size=12), st.text(alphabet="ab c", min_size=1, max_size=8))
def test_a_text_is_cut_without_losing_anything(before: str, after: str) -> None:
    def encode(text: str) -> list[int]:  # a token is a word with the space before it
        return [zlib.crc32(piece.encode()) for piece in re.findall(r" ?[^ ]+| ", text)]

    start, rest = encode_pair(encode, before, after)
    assert start + rest == encode(before + after)
    assert rest
