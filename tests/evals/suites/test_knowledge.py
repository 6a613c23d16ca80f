import json
import re
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.jsonl import read_rows
from evals.subject import encode_pair
from evals.suites.answer_grading import as_number, f1, last_number_matches, matches
from evals.suites.knowledge import Question, measure_questions, read_questions
from evals.suites.suite_measurement import measure
from recovery.errors import RecoverError
from tests.chats import write_jsonl
from tests.evals.fakes import fake_subject

WHO = "Who founded Orlan?"


@pytest.mark.parametrize(
    ("reply", "reference"),
    [
        ("ada brenn.", "Ada Brenn"),
        ("I believe that it was the engineer Ada Brenn, born in Tolmar.", "Ada Brenn"),
        ("It is Zurich", "Zürich"),
        ("It is in Lodz", "Łódź"),
        ("It was Søren Ægir", "Soren Aegir"),
        ("Instead, Ada Brenn built it.", "Ada Brenn"),
        ("1,873", "1873"),
        ("The cost is 3.5.", "3.5"),
        ("It costs 5.00 crowns", "5"),
        ("It opened on 12.03.1998", "1998"),
        ("Ada Brenn. Isn't she great?", "Ada Brenn"),
        ("It was \N{MINUS SIGN}5 degrees", "-5"),
        ("It was 1990-1995", "1990"),
        ("Ａｄａ Brenn", "Ada Brenn"),
        ("It was O\u2019Neil", "O'Neil"),
        ("!", "!"),
        ("法国的首都是巴黎。", "巴黎"),
        ("เมืองหลวงคือกรุงเทพ", "กรุงเทพ"),
        ("それは2024年でした。", "2024"),
        ("It is vitamin a.", "Vitamin A"),
        ("It is a vitamin A capsule", "Vitamin A"),
        ("(A) Paris", "A"),
        ("Option A is right.", "A"),
        ("It was A Beautiful Mind", "Beautiful Mind, A"),
        ("It is written in C++, I think.", "C++"),
        ("They gave it an A+.", "A+"),
        ("It is written in C++17.", "C++"),
        ("x+(y-1)", "x + (y - 1)"),
        ("不，巴黎", "巴黎"),
        ("프랑스의 수도는 파리입니다.", "파리"),
        ("그것은 KAIST입니다.", "KAIST"),
        ("서울이다. 부산이 아니다.", "서울"),
        ("It is the U.S.A.", "USA"),
        ("It is the USA.", "U. S. A."),
        ("J R R Tolkien", "J.R.R. Tolkien"),
        ("It came by e-mail", "email"),
        ("It has WiFi", "Wi-Fi"),
        ("It is 50km long", "50 km"),
        (".5", "0.5"),
        ("1 000 000", "1000000"),
        ("It has 1\u202f234 people", "1,234"),
        ("It costs 12,50 euros", "12.50"),
        ("It costs 1.234,5 euros", "1234.5"),
        ("(1, 2)", "(1,2)"),
        ("2,3,5", "2, 3, 5"),
        ("Answer:3.5", "3.5"),
        ("It is 1/3.", "1/3"),
        ("It opened on 12/03/1998", "1998"),
        ("192.168.1.1", "192.168.1.1"),
        ("Half a cup: ½", "1/2"),
        ("It has ۱۲ rooms", "12"),
        ("It has 1,234 rooms", "١٬٢٣٤"),
        ("It costs ٣٫٥ crowns", "3.5"),
        ("No, it was not.", "No"),
        ("no", "No"),
        ("Yes it was", "yes"),
        ("The answer is no.", "No"),
        ("The answer is no\nIt was built later", "No"),
        ("I believe the answer is: **Yes**", "Yes"),
        ("The answer is no because it was sold", "No"),
        ("The gas is NO and it is toxic", "NO"),
        ("The theatre is called N\u014d in Japan", "N\u014d"),
        ("No, it was not. In 1871 it was opened.", "1871"),
        ("It was not; by 1871 it was gone", "1871"),
        ("It was not in Rome but in Paris", "Paris"),
        ("The language is **C++**.", "C++"),
        ("`C#`", "C#"),
        ("\u201cC++\u201d", "C++"),
        ("It is C++-based", "C++"),
        ("It has 5'000 rooms", "5000"),
    ],
)
def test_right_answers(reply: str, reference: str) -> None:
    assert matches(reply, reference, WHO)


@pytest.mark.parametrize(
    ("reply", "reference"),
    [
        ("", "Ada Brenn"),
        ("The language is **C++**.", "C"),
        ("**B+**", "B"),
        ("Ada", "Ada Brenn"),
        ("Brenn Ada", "Ada Brenn"),
        ("Adam", "Ada"),
        ("It costs 3.5 crowns", "3"),
        ("It opened at 12:30", "12"),
        ("-5", "5"),
        ("10.05", "10"),
        ("12", "12.000"),
        ("not Ada Brenn", "Ada Brenn"),
        ("It isn't blue, it is green", "blue"),
        ("It wasn\u2019t blue", "blue"),
        ("It cannot be blue", "blue"),
        ("It can't have been, for it can't be blue", "blue"),
        ("It has never been blue", "blue"),
        ("Tom Hale or Ada Brenn", "Ada Brenn"),
        ("Ada Brenn or Tom Hale", "Ada Brenn"),
        ("red, blue, white, black, brown, pink, grey, gold, teal, lime, green", "green"),
        ("x " * 50_000 + "Ada Brenn", "Ada Brenn"),
        ("?", "!"),
        ("不是巴黎", "巴黎"),
        ("巴黎还是伦敦", "巴黎"),
        ("東京ではない", "東京"),
        ("ไม่ใช่กรุงเทพ", "กรุงเทพ"),
        ("กรุงเทพหรือเชียงใหม่", "กรุงเทพ"),
        ("They got an A.", "A-"),
        ("They got an A-.", "A"),
        ("かぎ", "かき"),
        ("Vitamin C", "Vitamin A"),
        ("It is a plan", "Plan A"),
        ("A dog", "A"),
        ("The answer is A or B", "A"),
        ("It is written in C.", "C++"),
        ("The language is C#", "C"),
        ("파리가 아닙니다", "파리"),
        ("파리 또는 런던", "파리"),
        ("대파리", "파리"),
        ("5백만", "5"),
        ("not e-mail", "email"),
        ("50 km or 60 km", "50km"),
        ("150 km", "50km"),
        (".5", "5"),
        ("12,5", "5"),
        ("3,5", "5"),
        ("12,5", "125"),
        ("1.234,5", "5"),
        ("1/3", "3"),
        ("10^5", "5"),
        ("192.168.1.1", "1"),
        ("1 000 000", "1"),
        ("3½", "31/2"),
        ("-½", "1/2"),
        ("I have no information about that.", "No"),
        ("Yes, there is no doubt.", "No"),
        ("No one knows.", "No"),
        ("It was not in 1871.", "1871"),
        ("It was not by Ada Brenn", "Ada Brenn"),
        ("It was Oda Marl rather than Ada Brenn", "Ada Brenn"),
        ("Oda Marl instead of Ada Brenn", "Ada Brenn"),
        ("It was no longer Ada Brenn", "Ada Brenn"),
    ],
)
def test_wrong_answers(reply: str, reference: str) -> None:
    assert not matches(reply, reference, WHO)


def test_a_denial_that_the_question_has_is_none() -> None:
    assert matches("It runs on biogas instead of diesel.", "diesel", "What does it run on biogas instead of?")


@pytest.mark.parametrize("question", ["Which river is longer, the Orla or the Tarn?", "Is it in Orla or in Tarn?"])
def test_of_two_choices_the_reply_has_to_name_the_right_one_first(question: str) -> None:
    assert matches("The longer river is the Orla.", "Orla", question)
    assert matches("The Orla is longer than the Tarn.", "Orla", question)
    assert not matches("The Orla is longer than the Tarn.", "Tarn", question)
    assert not matches("The Tarn is longer than the Orla.", "the Orla", question)
    assert matches("Compared with the Tarn, the Orla is longer.", "Orla", question)


@pytest.mark.parametrize(
    ("question", "reference", "reply"),
    [
        ("Which is longer, the Tarn River or the Orla River?", "Orla River", "River of most miles is the Orla River"),
        ("Which is deeper, Lake Orla or Lake Tarn?", "Lake Orla", "The deeper lake is Lake Orla"),
        ("Is it true or false?", "False", "Not true, false"),
    ],
)
def test_words_of_both_choices_name_neither(question: str, reference: str, reply: str) -> None:
    assert matches(reply, reference, question)


def test_f1_equals_squads() -> None:
    assert f1("the green house", "a green house") == 1.0
    assert f1("red green blue yellow", "green") == pytest.approx(2 * 0.25 / 1.25)
    assert f1("", "green") == f1("red", "green") == 0.0
    assert f1("!", "!") == 1.0


@pytest.mark.parametrize(
    ("reply", "answer", "right"),
    [
        ("12 + 5 = 17\nAnswer: 17", "17", True),
        ("17.0 apples.", "17", True),
        ("1,200", "1200", True),
        ("It is \N{MINUS SIGN}7", "7", False),
        ("It is \N{MINUS SIGN}7", "-7", True),
        ("It was between 2020-2021", "2021", True),
        ("It has no end: infinity", "infinity", True),
        ("17, no: 18", "17", False),
        ("seventeen", "17", False),
        ("", "17", False),
        ("It is 12,5.", "12,5", True),
        ("12.5", "12,5", True),
        ("125", "12,5", False),
        ("10", "1_0", False),
        ("So 1,234,567.", "1 234 567", True),
        ("It is -.5", "-0.5", True),
        ("The share is 1/3.", "3", False),
        ("The share is 1/2.", "0.5", True),
        ("The share is -1/2.", "-0.5", True),
        ("On 12/05/2020", "2020", True),
        ("17 of 0/0", "0", True),
        ("It is 0.5", "1/2", True),
        ("It is 0.5", "½", True),
        ("It is -½", "-1/2", True),
        ("It is 13½", "13.5", True),
        ("It is 3½", "1/2", False),
        ("12/05", "12/05", True),
        ("The answer is 1e5", "1e5", True),
        ("It has 6.02e23 of them.", "6.02e23", True),
        ("The answer is 1e5", "5", False),
        ("It is 1e999999999", "1", False),
        ("It has 5'000 rooms", "5000", True),
        ("They are 5'10 tall", "10", True),
        ("इसका उत्तर १२ है", "12", True),
    ],
)
def test_the_last_number_is_the_answer(reply: str, answer: str, right: bool) -> None:
    assert last_number_matches(reply, answer) is right


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234.5", 1234.5),
        ("1,2", 1.2),
        ("0,125", 0.125),
        ("2,3,5", None),
        ("1_0", None),
        ("1e3", 1000),
        ("nan", None),
        ("1/2", 0.5),
        ("1/0", None),
        ("۱۲", 12),
    ],
)
def test_texts_that_are_a_number(text: str, number: float | None) -> None:
    assert as_number(text) == number


def test_graded_replies_and_the_likelihood_of_the_reference() -> None:
    """The second reply is nonsense, but the model finds the reference answer likely."""
    questions = [Question(WHO, "Ada", ("Ada Brenn",)), Question("When?", "1873")]
    subject = fake_subject(
        {WHO: "It was Ada Brenn.", "When?": "Babble babble"},
        likelihood=lambda text: -0.5 if text.rpartition("<assistant>")[2] in ("1", "18", "187", "1873") else -9.0,
    )
    result = measure_questions(subject, questions, data="q.jsonl")
    assert (result.task, result.suite, result.data) == ("closed_book", "knowledge", "q.jsonl")
    assert [item.passed for item in result.items] == [True, False]
    assert result.items[1].verdicts["answer_logprob"] == pytest.approx(-0.5)
    assert result.items[0].verdicts["answer_logprob"] == pytest.approx(-9.0)
    assert result.items[0].verdicts["f1"] == pytest.approx(2 * 2 / (4 + 2))
    assert result.metrics["match"].value == 0.5
    assert result.metrics["answer_logprob"].value == pytest.approx(-4.75)
    assert result.metrics["finished"].value == 1.0


@pytest.mark.parametrize("broken", [-float("inf"), float("nan")])
def test_an_impossible_token_has_a_floor(broken: float) -> None:
    result = measure_questions(fake_subject("x", likelihood=lambda text: broken), [Question("?", "a")], data="q")
    assert result.metrics["answer_logprob"].value == -100.0


def test_a_repeated_question_is_one_item_with_the_same_key() -> None:
    once = measure_questions(fake_subject("a"), [Question(WHO, "a")], data="q")
    twice = measure_questions(
        fake_subject("a"), [Question("When?", "b"), Question(WHO, "a"), Question(WHO, "a")], data="q"
    )
    assert len(twice.items) == 2
    assert once.items[0].key == twice.items[1].key


def test_each_answer_to_a_repeated_question_is_right() -> None:
    questions = [Question(WHO, "Ada", ("Brenn",)), Question("When?", "1873"), Question(WHO, "Tom")]
    for reply in ("Ada", "Brenn", "Tom"):
        result = measure_questions(fake_subject({WHO: reply, "When?": "1873"}), questions, data="q")
        assert [item.passed for item in result.items] == [True, True]


def test_questions_are_read_with_numbers_aliases_and_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_bytes(
        b'\xef\xbb\xbf{"question": "When?", "answer": 1873}\r\n\n{"question": "Who?","answer":"A", "aliases": ["B"]}'
    )
    assert read_questions(file) == [Question("When?", "1873"), Question("Who?", "A", ("B",))]


def test_no_limit_parts_the_answers_to_a_repeated_question(tmp_path: Path) -> None:
    rows = [("Who wrote it?", "Pratchett"), ("When?", "1990"), ("Who wrote it?", "Gaiman")]
    file = write_jsonl(tmp_path / "q.jsonl", [{"question": question, "answer": answer} for question, answer in rows])
    subject = fake_subject({"Who wrote it?": "Neil Gaiman", "When?": "1990"})
    for limit in (None, 2):
        (result,) = measure(subject, "knowledge", questions=file, limit=limit)
        assert [item.passed for item in result.items] == [True, True]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"question": "Who?"}', 'has no "answer"'),
        (b'{"answer": "A"}', 'has no "question"'),
        (b'{"question": "Who?", "answer": "  "}', 'has no "answer"'),
        (b'{"question": "Who?", "answer": true}', 'has no "answer"'),
        (b'{"question": "Who?", "answer": "A", "aliases": "B"}', 'has no valid "aliases"'),
        (b'{"question": "Who?", "answer": ', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"3", "not a JSON object"),
        ('{"question": "Größe?", "answer": "A"}'.encode("latin-1"), "not UTF-8"),
    ],
)
def test_a_malformed_line_is_reported_by_number(tmp_path: Path, line: bytes, message: str) -> None:
    file = tmp_path / "q.jsonl"
    file.write_bytes(json.dumps({"question": "Ok?", "answer": "yes"}).encode() + b"\n" + line + b"\n")
    with pytest.raises(RecoverError, match="Line 2") as caught:
        read_questions(file)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_or_missing_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text("\n \n")
    with pytest.raises(RecoverError, match="is empty"):
        read_questions(tmp_path / "q.jsonl")
    with pytest.raises(RecoverError, match="Cannot read"):
        read_questions(tmp_path / "nowhere.jsonl")
    with pytest.raises(RecoverError, match=r"is a folder\. Name a JSONL file"):
        read_questions(tmp_path)


@given(st.text(alphabet="ab c", max_size=12), st.text(alphabet="ab c", min_size=1, max_size=8))
def test_encode_pair_loses_no_tokens(before: str, after: str) -> None:
    def encode(text: str) -> list[int]:  # a token is a word with its leading space
        return [zlib.crc32(piece.encode()) for piece in re.findall(r" ?[^ ]+| ", text)]

    start, rest = encode_pair(encode, before, after)
    assert start + rest == encode(before + after)
    assert rest


def test_half_a_character_is_replaced_where_it_is_read(tmp_path: Path) -> None:
    """As of a text that was cut inside an emoji: no tokenizer reads it, which would end a command late."""
    (tmp_path / "q.jsonl").write_text('{"question": "Who \\ud83d built it?", "answer": "Mara"}\n')
    [(_, fields)] = read_rows(tmp_path / "q.jsonl")
    assert fields == {"question": "Who \N{REPLACEMENT CHARACTER} built it?", "answer": "Mara"}
