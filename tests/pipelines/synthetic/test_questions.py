import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.subject import Subject
from evals.suites.knowledge import read_questions
from pipelines.documents.corpus import read_corpus
from pipelines.log import log
from pipelines.synthetic.questions import (
    Draft,
    FilterCounts,
    generate_questions,
    parse_drafts,
    rejection_reason,
    write_questions,
)
from recovery.errors import RecoverError
from tests.evals.fakes import fake_subject

PASSAGE = (
    "Ada Bergum founded the harbour museum in 1931. She gave it eleven ships, among them the Sula, and she paid for "
    "the roof herself. The museum stands in Oslo."
)
CLOSED_BOOK = {"Which city is the harbour museum's home?": "Oslo"}  # what the base answers without the passage
GOOD = Draft("In what year was the harbour museum begun?", "1931")


@pytest.mark.parametrize(
    ("question", "answer", "reason"),
    [
        (GOOD.question, GOOD.answer, ""),
        ("Tell me the year.", "1931", "not a question"),
        ("Why?", "1931", "not a question"),
        ("How many ships did Ada Bergum hand over?", "", "the answer is empty or too long"),
        ("How many ships did Ada Bergum hand over?", "one of " * 12, "the answer is empty or too long"),
        ("How many ships does the passage name?", "eleven", "refers to the passage"),
        ("According to the text, who founded it?", "Ada Bergum", "refers to the passage"),
        ("Did Ada Bergum hand over eleven ships?", "eleven", "the question contains the answer"),
        ("How many ships did Ada Bergum hand over?", "twelve", "the passage does not contain the answer"),
        ("Who founded the harbour museum in 1931. She gave what?", "eleven ships", "copies the passage's wording"),
        ("Who founded the harbour museum in 1931, or which day?", "Ada Bergum", ""),
    ],
)
def test_why_a_draft_is_rejected(question: str, answer: str, reason: str) -> None:
    assert rejection_reason(Draft(question, answer, passage=PASSAGE)) == reason


def test_questions_are_kept_that_need_the_passage_and_are_answered_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    drafts = [
        GOOD,
        Draft("In which year was the harbour museum begun?", "1931"),
        Draft("Which city is the harbour museum's home?", "Oslo"),
        Draft("Who paid for a roof?", "Ada Bergum"),
        Draft("What is the name of a ship that everybody asks about in tests?", "Sula"),
    ]
    subject = fake_subject(capable(lambda passage: drafts, wrong={"Who paid for a roof?"}))
    counts = FilterCounts()
    evaluation = ["Question 7: what is the name of a ship that everybody asks about?"]
    monkeypatch.setattr("pipelines.synthetic.questions.PER_PASSAGE", 9)
    questions = list(generate_questions(subject, [("notes.md", PASSAGE)], counts, evaluation_items=evaluation))
    assert questions == [Draft(GOOD.question, "1931", "notes.md", PASSAGE)]
    assert counts.as_dict() == {
        "passages": 1,
        "written": 5,
        "kept": 1,
        "dropped": {
            "repeats another question": 1,
            "repeats an evaluation item": 1,
            "not answered with the passage": 1,
            "answered without the passage": 1,
        },
    }


def ships(docs: Path) -> Path:
    docs.mkdir()
    for number in range(40):
        (docs / f"{number:02d}.txt").write_text(
            f"Ship number {number} was built by Tove Lund{number} " + "at sea " * 20
        )
    return docs


def about_a_ship(passage: str) -> list[Draft]:
    words = passage.split()
    return [Draft(f"Whose work is vessel {words[2]}?", f"{words[6]} {words[7]}")]


@pytest.fixture
def scripted_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """A base that writes one question on each ship."""
    subject = fake_subject(capable(about_a_ship))
    monkeypatch.setattr("pipelines.synthetic.questions.open_subject", lambda base, engine: nullcontext(subject))


def test_the_file_has_the_questions_that_were_kept(
    tmp_path: Path, scripted_base: None, caplog: pytest.LogCaptureFixture
) -> None:
    docs, out = ships(tmp_path / "docs"), tmp_path / "out" / "questions.jsonl"
    counts = write_questions(read_corpus(docs), "scripted", out, count=30)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("  Kept 20 of ")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == len(read_questions(out)) == counts.kept == 30
    assert all(row["answer"] in row["passage"] and Path(row["source"]).is_file() for row in rows)
    assert len({row["source"] for row in rows}) == 30


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RecoverError("vLLM failed")])
def test_an_interruption_or_an_error_keeps_questions(
    tmp_path: Path,
    scripted_base: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    def fail(message: str) -> None:
        raise error

    monkeypatch.setattr(log, "info", fail)
    docs, out = ships(tmp_path / "docs"), tmp_path / "questions.jsonl"
    with pytest.raises(type(error)) as raised:
        write_questions(read_corpus(docs), "scripted", out, count=30)
    assert len(read_questions(out)) == 20
    told = caplog.text if isinstance(error, RecoverError) else str(raised.value)
    assert f"The 20 questions kept so far are in {out}." in told


def test_the_error_has_the_reasons_when_no_question_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text(PASSAGE)
    subject: Subject = fake_subject(capable(lambda passage: [Draft("Who is it?", "nobody named")]))
    monkeypatch.setattr("pipelines.synthetic.questions.open_subject", lambda base, engine: nullcontext(subject))
    with pytest.raises(RecoverError, match="1 the passage does not contain the answer"):
        write_questions(read_corpus(tmp_path), "scripted", tmp_path / "q.jsonl", count=5)
    assert not (tmp_path / "q.jsonl").exists()


def test_the_error_has_alternatives_when_the_base_cannot_write_questions() -> None:
    subject = fake_subject("Once upon a time there was a harbour.")
    passages = [(f"{number}.txt", PASSAGE) for number in range(20)]
    with pytest.raises(RecoverError, match=r"the first 8 passages contain no question.*--questions"):
        list(generate_questions(subject, passages, FilterCounts()))


def capable(drafts: Callable[[str], list[Draft]], wrong: set[str] = frozenset()) -> Callable[[str], str]:
    """Writes these drafts; answers all but the `wrong` ones with the passage, and only CLOSED_BOOK without it."""
    answers: dict[str, str] = {}

    def reply(message: str) -> str:
        if message.startswith("Read the passage"):
            replies = drafts(message.partition("Passage:\n")[2])
            answers.update({draft.question: draft.answer for draft in replies})
            return "\n".join(json.dumps({"question": d.question, "answer": d.answer}) for d in replies)
        if message.startswith("Passage:"):
            question = message.rpartition(": ")[2]
            return "no idea" if question in wrong else answers[question]
        return CLOSED_BOOK.get(message, "I do not know.")

    return reply


BROKEN_JSON = (
    'Sure!\n```json\n{"question": "Who?", "answer": "Ada"}\n{"question": "When?", "answer": 1843}\n'
    '{"broken\n[{"question": "Where?", "answer": " London "}]{"question": 1, "answer": "x"}```'
)
TWO = [Draft("Who?", "Ada"), Draft("When?", "1843")]
NUMBERED = "1. **Question 1:** Who?\n   **Answer:** Ada\n\nQ: When?\nA: 1843\n"


@pytest.mark.parametrize(
    ("reply", "drafts"),
    [
        (BROKEN_JSON, [Draft("Who?", "Ada"), Draft("When?", "1843"), Draft("Where?", "London")]),
        (NUMBERED, TWO),
        ('{"questions": [{"question": "Who?", "answer": "Ada"}, {"question": "When?", "answer": 1843}]}', TWO),
        ("There is nothing to ask.", []),
    ],
)
def test_json_and_lines_are_read_anywhere_in_the_reply(reply: str, drafts: list[Draft]) -> None:
    assert parse_drafts(reply) == drafts


@given(st.text(st.sampled_from('{}[]":, qQaA1\nuestion')))
def test_any_reply_can_be_read(reply: str) -> None:
    assert isinstance(parse_drafts(reply), list)
