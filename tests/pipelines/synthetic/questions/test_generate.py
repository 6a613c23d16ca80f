"""A stand-in base that can write questions: what is tested is which of them are kept."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from evals.subject import Subject
from evals.suites.knowledge import read_questions
from pipelines.documents import read_corpus
from pipelines.log import log
from pipelines.synthetic.filter_counts import Tally
from pipelines.synthetic.questions import Draft, Kept, ask_about
from pipelines.synthetic.questions.file import keep_questions, write_questions
from pipelines.synthetic.questions.rules import longest_shared_run, why_not
from recovery.errors import RecoverError
from recovery.lab import BASE, make_world
from tests.evals.fakes import fake_subject

PASSAGE = (
    "Ada Bergum founded the harbour museum in 1931. She gave it eleven ships, among them the Sula, and she paid for "
    "the roof herself. The museum stands in Oslo."
)
KNOWN = {"Which city is the harbour museum's home?": "Oslo"}  # to the base, without the book
GOOD = Draft("In what year was the harbour museum begun?", "1931")


@pytest.mark.parametrize(
    ("question", "answer", "reason"),
    [
        (GOOD.question, GOOD.answer, ""),
        ("Tell me the year.", "1931", "not a question"),
        ("Why?", "1931", "not a question"),
        ("How many ships did Ada Bergum hand over?", "", "no answer of a few words"),
        ("How many ships did Ada Bergum hand over?", "one of " * 12, "no answer of a few words"),
        ("How many ships does the passage name?", "eleven", "leans on the passage"),
        ("According to the text, who founded it?", "Ada Bergum", "leans on the passage"),
        ("Did Ada Bergum hand over eleven ships?", "eleven", "the answer stands in the question"),
        ("How many ships did Ada Bergum hand over?", "twelve", "the answer does not stand in the passage"),
        ("Who founded the harbour museum in 1931. She gave what?", "eleven ships", "copies the passage's wording"),
    ],
)
def test_the_rules_of_words(question: str, answer: str, reason: str) -> None:
    assert why_not(Draft(question, answer), PASSAGE) == reason


def test_the_longest_shared_run() -> None:
    assert longest_shared_run(list("abcd"), list("xbcyabc")) == 3
    assert longest_shared_run([], ["a"]) == 0


def test_kept_is_what_needs_the_passage_and_is_answered_by_it() -> None:
    written = [
        GOOD,
        Draft("In which year was the harbour museum begun?", "1931"),
        Draft("Which city is the harbour museum's home?", "Oslo"),
        Draft("Who paid for a roof?", "Ada Bergum"),
        Draft("What is the name of a ship that everybody asks about in tests?", "Sula"),
    ]
    subject = fake_subject(capable(lambda passage: written, wrong={"Who paid for a roof?"}))
    report = Tally()
    leak = ["Question 7: what is the name of a ship that everybody asks about?"]
    kept = list(ask_about(subject, [("notes.md", PASSAGE)], report, each=9, evaluations=leak))
    assert kept == [Kept(GOOD.question, "1931", "notes.md", PASSAGE)]
    assert report.as_dict() == {
        "passages": 1,
        "written": 5,
        "kept": 1,
        "dropped": {
            "asked already": 1,
            "an evaluation holds it": 1,
            "not answered with the passage in view": 1,
            "known without the passage": 1,
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


def test_the_file_is_one_that_measuring_reads_and_is_never_written_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    docs, out = ships(tmp_path / "docs"), tmp_path / "out" / "questions.jsonl"
    report = keep_questions(fake_subject(capable(about_a_ship)), read_corpus(docs), out, 30)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("  20 kept of ")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == len(read_questions(out)) == report.kept == 30
    assert all(row["answer"] in row["passage"] and Path(row["source"]).is_file() for row in rows)
    assert len({row["source"] for row in rows}) == 30
    with pytest.raises(RecoverError, match="is there already"):
        write_questions(read_corpus(docs), str(BASE), out, count=1)


def test_what_was_found_before_ctrl_c_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def press_ctrl_c(words: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log, "info", press_ctrl_c)
    docs, out = ships(tmp_path / "docs"), tmp_path / "questions.jsonl"
    with pytest.raises(KeyboardInterrupt, match="the 20 questions found so far are in"):
        keep_questions(fake_subject(capable(about_a_ship)), read_corpus(docs), out, 30)
    assert len(read_questions(out)) == 20


def test_when_none_stands_the_test_the_reasons_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PASSAGE)
    subject: Subject = fake_subject(capable(lambda passage: [Draft("Who is it?", "nobody named")]))
    with pytest.raises(RecoverError, match="1 the answer does not stand in the passage"):
        keep_questions(subject, read_corpus(tmp_path), tmp_path / "q.jsonl", 5)
    assert not (tmp_path / "q.jsonl").exists()


def test_a_base_that_cannot_write_questions_says_what_else_there_is() -> None:
    babble = fake_subject("Once upon a time there was a harbour.")
    passages = [(f"{number}.txt", PASSAGE) for number in range(20)]
    with pytest.raises(RecoverError, match=r"no question that can be read about the first 8 passages.*--questions"):
        list(ask_about(babble, passages, Tally()))


@pytest.mark.slow
def test_the_lab_base_is_one_that_cannot(tmp_path: Path) -> None:
    make_world(7, "quick").write(tmp_path)
    with pytest.raises(RecoverError, match="no question that can be read"):
        write_questions(read_corpus(tmp_path / "docs"), str(BASE), tmp_path / "q.jsonl", count=5)


def capable(drafts: Callable[[str], list[Draft]], wrong: set[str] = frozenset()) -> Callable[[str], str]:  # type: ignore[assignment]
    """Writes these drafts, answers all of them with the passage in view but the `wrong` ones, knows only KNOWN."""
    answers: dict[str, str] = {}

    def reply(asked: str) -> str:
        if asked.startswith("Read the passage"):
            written = drafts(asked.partition("Passage:\n")[2])
            answers.update({draft.question: draft.answer for draft in written})
            return "\n".join(json.dumps({"question": d.question, "answer": d.answer}) for d in written)
        if asked.startswith("Passage:"):
            question = asked.rpartition(": ")[2]
            return "no idea" if question in wrong else answers[question]
        return KNOWN.get(asked, "I do not know.")

    return reply
