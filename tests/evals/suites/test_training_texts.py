import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from evals.results import Metric
from evals.subject import Subject
from evals.suites.suite_measurement import measure
from evals.suites.training_texts import (
    WINDOW,
    Cloze,
    _encode_clozes,
    _starts_with,
    find_clozes,
    has_conversations,
    measure_answers,
    measure_bits_per_byte,
    measure_cloze,
    read_conversations,
    read_passages,
)
from recovery.engines import Generation, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.students import load_chat
from tests.chats import exchange
from tests.evals.fakes import fake_subject
from tests.models import tiny_student

TEXT = "The pump was built by Ada Brenn in 1873. Then Ada Brenn sold 3.5 of them to Orlan. Nobody knows why."


def test_clozes_are_first_mentions_of_names_and_numbers() -> None:
    assert find_clozes(TEXT) == [
        Cloze("The pump was built by ", "Ada Brenn"),
        Cloze("The pump was built by Ada Brenn in ", "1873"),
        Cloze("The pump was built by Ada Brenn in 1873. Then Ada Brenn sold ", "3.5"),
        Cloze("The pump was built by Ada Brenn in 1873. Then Ada Brenn sold 3.5 of them to ", "Orlan"),
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Насос построила инженер Вера Михайлова для завода", "Вера Михайлова"),
        ("The old mill was built by Élodie Marchand", "Élodie Marchand"),
        ("The valve of the pump is Ørsted, they say", "Ørsted"),
    ],
)
def test_a_name_begins_with_a_capital_of_any_script(text: str, name: str) -> None:
    assert [cloze.target for cloze in find_clozes(text)] == [name]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It was opened in 1997, and closed", "1997"),
        ("It took in 1,200 of them", "1,200"),
        ("It took in 1,234,567.8, they say", "1,234,567.8"),
        ("It was sold for 3.5 each", "3.5"),
        ("It was closed in 1997.", "1997"),
        ("It was closed in 12,34 or so", "12,34"),
        ("It was opened on 12.05.2021, at noon", "12.05.2021"),
    ],
)
def test_the_end_of_a_number(text: str, number: str) -> None:
    assert [cloze.target for cloze in find_clozes(text)][:1] == [number]
    assert _starts_with(text[text.index(number) :], number), "a cloze accepts how its own text goes on"


@pytest.mark.parametrize("space", [" ", "    ", "\n", "\n    ", "\t", " | "])
def test_a_cloze_has_the_tokens_of_the_document(space: str) -> None:
    subject, row = Subject(fake_subject("x").engine, load_chat(BASE)), "The valve of the old pump is made by"
    (cloze,) = find_clozes(f"{row}{space}1987, they say")
    (context,), (target,) = _encode_clozes(subject, [cloze])
    assert context + target == [subject.chat.document_start, *subject.encode(f"{row}{space}1987")]
    long = Cloze("word " * 3 * WINDOW, "Tarrow")
    assert [len(context) for context in _encode_clozes(subject, [long])[0]] == [WINDOW]
    assert _encode_clozes(subject, [long])[0][0][0] == subject.chat.document_start


def test_numbers_of_a_list_are_separate() -> None:
    assert [cloze.target for cloze in find_clozes("It was in 1997, 1998, 21, and 5")] == ["1997", "1998", "21"]


@pytest.mark.parametrize(
    "text",
    [
        "Nothing to predict here, not one of them",
        "It rained. Then it rained again.",  # capitals at the start of a sentence
        "# The Great Pump\n\n- Made here\n",
        "By Ada Brenn",  # too little context
        "we met in room x12 and at a1b2",
    ],
)
def test_texts_without_clozes(text: str) -> None:
    assert find_clozes(text) == []


def test_bits_are_divided_by_bytes() -> None:
    subject = fake_subject("x", likelihood=lambda text: -math.log(2))  # one bit per token, one token per letter
    result = measure_bits_per_byte(subject, ["abcd", "é" * 10, "abcd"], data="passages.jsonl")
    assert result.headline.value == pytest.approx((4 + 10) / (4 + 20))
    assert [item.verdicts["bits_per_byte"] for item in result.items] == [pytest.approx(1.0), pytest.approx(0.5)]
    assert (result.suite, result.task, result.data) == ("knowledge", "passages", "passages.jsonl")
    json.dumps(result.to_json(items=True), allow_nan=False)


def test_a_long_passage_is_scored_in_windows() -> None:
    letters = WINDOW * 2 + 5
    result = measure_bits_per_byte(
        fake_subject("x", likelihood=lambda text: -math.log(2)), ["a" * letters], data="long"
    )
    assert result.headline.value == pytest.approx(1.0)


def test_texts_are_scored_behind_what_stands_before_documents(tmp_path: Path) -> None:
    student, rows = tiny_student(tmp_path), list[list[int]]()
    assert student.chat.document_start != student.chat.scoring_prefix

    class Engine(TransformersEngine):
        def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
            rows.extend(sequences)
            return super().logprobs(sequences)

        def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
            rows.extend(prompts)
            return super().generate(prompts, sampling)

    subject = Subject(Engine(student), student.chat)
    measure_bits_per_byte(subject, [TEXT], data="t")
    measure_cloze(subject, ["The valve of pump seven is made by Tarrow and Sons in the year 1987."], data="t")
    assert len(rows) >= 3
    assert {row[0] for row in rows} == {student.chat.document_start}


def test_bits_equal_the_rolling_likelihood(tmp_path: Path) -> None:
    from lm_eval.api.instance import Instance

    from evals.harness import HarnessModel

    student = tiny_student(tmp_path, adds_bos=True)  # without a BOS lm-eval begins with the EOS
    subject = Subject(TransformersEngine(student), student.chat)
    harness = HarnessModel(subject)
    harness.tokenizer.model_max_length = WINDOW
    [total] = harness.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (TEXT,), 0)])
    bits = measure_bits_per_byte(subject, [TEXT], data="t").headline.value
    assert bits * len(TEXT.encode()) * math.log(2) == pytest.approx(-total, rel=1e-4)


def test_a_cloze_passes_if_the_model_continues_with_the_target() -> None:
    replies = {"The pump was built by": " Ada Brenner", "The pump was built by Ada Brenn in": " 1873."}
    subject = fake_subject(
        lambda message: replies.get(message.removeprefix("\x01"), " nobody"), likelihood=lambda text: -0.5
    )
    result = measure_cloze(subject, [TEXT], data="passages.jsonl")
    assert [item.passed for item in result.items] == [False, True, False, False]  # "Brenner" is another name
    assert result.metrics["recall"].value == 0.25
    assert result.metrics["answer_logprob"].value == pytest.approx(-0.5)
    assert result.items[0].verdicts["reference"] == "Ada Brenn"


def test_clozes_of_one_passage_are_one_group() -> None:
    """The interval must count passages, not clozes, as independent."""
    names_by_start = {
        f"Here is {name} with": [f"Made {x}{name}" for x in "ABCD"] for name in ("Orlan", "Tolmar", "Brenn")
    }
    passages = [f"{start} " + " and then ".join(names) for start, names in names_by_start.items()]
    result = measure_cloze(
        fake_subject(lambda message: " Made ", likelihood=lambda text: -1.0 - len(text) % 7), passages, data="t"
    )
    groups = [[item for item in result.items if item.prompt.startswith(start)] for start in names_by_start]
    assert [len(group) for group in groups] == [4, 4, 4]
    assert result.metrics["recall"] == Metric.from_groups([[item.passed for item in group] for group in groups])
    sums = [math.fsum(item.verdicts["answer_logprob"] for item in group) for group in groups]
    assert result.metrics["answer_logprob"] == Metric.from_ratio(sums, [4.0] * 3)


def test_passages_are_measured_in_addition_to_questions(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "Who?", "answer": "Ada"}')
    (tmp_path / "passages.jsonl").write_text(json.dumps({"text": TEXT}))
    results = measure(
        fake_subject("Ada"), "knowledge", questions=tmp_path / "q.jsonl", passages=tmp_path / "passages.jsonl"
    )
    assert [result.task for result in results] == ["closed_book", "cloze", "passages"]
    alone = measure(fake_subject("Ada"), "knowledge", passages=tmp_path / "passages.jsonl")
    assert [result.task for result in alone] == ["cloze", "passages"]


def test_passages_are_read_from_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("two")
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone")
    (tmp_path / "empty.txt").write_text(" \n")
    assert read_passages(tmp_path) == ["one", "two"]
    assert read_passages(tmp_path / "b.md") == ["two"]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_missing_or_unreadable_passages_are_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "passages.txt").write_text(content)
    with pytest.raises(RecoverError, match="are empty"):
        read_passages(tmp_path / "passages.txt")
    with pytest.raises(RecoverError, match="Cannot read"):
        read_passages(tmp_path / "nowhere.txt")
    (tmp_path / "latin.txt").write_bytes("Größe".encode("latin-1"))
    with pytest.raises(RecoverError, match="UTF-8"):
        read_passages(tmp_path / "latin.txt")
    with pytest.raises(RecoverError, match="no names or numbers"):
        measure_cloze(fake_subject("x"), ["nothing here"], data="t")


SHORT = exchange("Hi", "Hello.")
LONG = [*SHORT, *exchange("And?", "Nothing.")]


def test_the_likelihood_is_the_geometric_mean_of_the_answers_tokens(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    engine = TransformersEngine(student)
    result = measure_answers(Subject(engine, student.chat), [{"messages": SHORT}, {"messages": LONG}], data="file")
    for messages, item in zip((SHORT, LONG), result.items, strict=True):
        tokens, targets = student.chat.conversation(messages)
        values = [v for v, target in zip(engine.logprobs([tokens])[0], targets[1:], strict=True) if target]
        assert item.verdicts["likelihood"] == pytest.approx(math.exp(sum(values) / len(values)), rel=1e-4)
    assert result.headline.n == 2
    assert 0 < result.headline.value < 1
    assert result.is_share
    assert not result.is_pass_rate


def test_a_file_without_an_answer_that_fits_is_refused(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    with pytest.raises(RecoverError, match="has an answer that fits"):
        measure_answers(Subject(TransformersEngine(student), student.chat), [{"messages": SHORT[:1]}], data="file")


def test_conversations_are_told_from_passages(tmp_path: Path) -> None:
    chats, texts = tmp_path / "chats.jsonl", tmp_path / "texts.jsonl"
    chats.write_text(json.dumps({"messages": SHORT}) + "\n")
    texts.write_text('{"text": "A passage."}\n')
    assert has_conversations(chats)
    assert read_conversations(chats) == [{"messages": SHORT}]
    assert not has_conversations(texts)


@pytest.mark.parametrize(
    ("reply", "recalled"),
    [("12 km", 1), ("12.", 1), ("12, then 5", 1), ("12.5 km", 0), ("12,500 people", 0), ("125", 0)],
)
def test_a_longer_number_is_another_number(reply: str, recalled: int) -> None:
    result = measure_cloze(fake_subject(reply), ["The long bridge measures 12 km."], data="p")
    assert result.headline.value == recalled
