from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schema import Distill, Settings
from pipelines.synthetic.base_outputs import GeneratedTexts
from pipelines.synthetic.passage_prompts import opening_prompts
from pipelines.training.document_rows import (
    conversation_samples,
    document_rows,
    rows_beside,
    training_file_rows,
    up_to_an_answer,
)
from pipelines.training.separator import measured_separator
from recovery.models.students import load_chat
from recovery.states import FixedRows
from tests.chat_families import FAMILIES, Family
from tests.chats import exchange, write_jsonl
from tests.models import change_json, save_tiny
from tests.pipelines.training.notes import NOTES, corpus_of_notes, stage_of


@given(turns=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=6), window=st.integers(1, 40))
def test_a_conversation_ends_with_the_last_answer_that_fits(turns: list[tuple[int, int]], window: int) -> None:
    targets = [answer for asked, answered in turns for answer in [False] * asked + [True] * answered]
    tokens, kept = up_to_an_answer(list(range(len(targets))), targets, window)
    ends = [sum(map(sum, turns[:count])) for count in range(len(turns) + 1)]
    assert len(tokens) == len(kept) == max(end for end in ends if end <= window)
    assert kept == targets[: len(kept)]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_documents_end_with_the_separator(tmp_path: Path, family: Family) -> None:
    corpus = corpus_of_notes(tmp_path)
    stage = stage_of(tmp_path, family)
    chat, start = load_chat(stage.project.base), stage.project.clean
    assert measured_separator(stage, corpus, start) is None
    documents = document_rows(stage, chat, [corpus], rows=1)
    (row,) = documents.draw(None, 0)
    assert row.tokens[-1] == chat.separator
    read = "".join(chat.tokenizer.convert_ids_to_tokens(row.tokens)).replace("Ġ", " ")
    bos = str(chat.tokenizer.bos_token) if family.adds_bos else ""
    assert sorted(read.removesuffix(family.separator).split(family.separator)) == [bos + note for note in NOTES]
    (prompt, *_) = opening_prompts(NOTES, chat, seed=0)
    assert prompt.tokens[0] == chat.document_start
    assert chat.separator in prompt.teacher_prompt[1:]


@pytest.mark.parametrize("use_labels", [True, False])
def test_documents_and_texts_are_their_shares_of_rows(
    tmp_path: Path, use_labels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = corpus_of_notes(tmp_path)
    stage = stage_of(tmp_path, FAMILIES["smollm2"])
    shares = {"distill": {"rows": 6, "documents": 0.3, "texts": 0.1}, "midtrain": {"window": 8}}
    stage = stage.with_settings(apply_overrides(stage.settings, shares))
    chat, texts = load_chat(stage.project.base), [GeneratedTexts(["What the base wrote, unprompted."] * 4, "1")]
    beside = rows_beside(stage, chat, [corpus], texts, None, use_labels=use_labels)
    documents, written = (part.draw(None, 0) for part in beside)
    assert (len(documents), len(written)) == (3, 1), "of ten rows"
    assert all(row.use_labels for row in documents)
    assert [row.use_labels for row in written] == [use_labels]
    [alone] = rows_beside(stage, chat, [corpus], [], None, use_labels=use_labels)
    assert len(alone.draw(None, 0)) == 3, "of nine rows, where the base wrote nothing"
    more = {"distill": {"rows": 8, "documents": 0.4, "texts": 0.2}, "midtrain": {"window": 8}}
    stage = stage.with_settings(apply_overrides(stage.settings, more))
    [alone] = rows_beside(stage, chat, [], texts, None, use_labels=use_labels)
    assert len(alone.draw(None, 0)) == 2, "of ten rows, where there are no documents"
    assert "No documents are read again" not in caplog.text
    asked = replace(stage, job=replace(stage.job, given={"distill.documents": 0.4}))
    assert rows_beside(asked, chat, [], [], None, use_labels=use_labels) == []
    assert "No documents are read again" in caplog.text


def save_conversations(folder: Path, answer: str, count: int = 40, prompt: str = "Question?") -> Path:
    rows = [{"messages": exchange(f"{i}. {prompt}", answer)} for i in range(count)]
    return write_jsonl(folder / "chats.jsonl", rows)


def rows_of(file: Path, settings: Distill, part: float = 1.0) -> list[FixedRows]:
    """By a tiny base beside the file."""
    project, job = SimpleNamespace(base=str(save_tiny(file.parent / "base"))), SimpleNamespace(seed=1)
    stage = SimpleNamespace(settings=Settings(distill=settings), project=project, job=job)
    share = part * settings.documents_share / (1 - settings.documents_share - settings.texts_share)
    return training_file_rows(stage, file, load_chat(project.base), share)


@pytest.mark.parametrize("part", [1.0, 0.5])
@pytest.mark.parametrize(("share", "texts"), [(0.1, None), (0.2, None), (0.5, None), (0.2, 0.3)])
def test_answers_are_about_the_share_of_the_target_tokens(
    tmp_path: Path, share: float, texts: float | None, part: float
) -> None:
    file = save_conversations(tmp_path, "This is the answer to the question, in a whole sentence.")
    settings = Distill(documents=share, texts=texts, rows=8, max_new_tokens=64)
    (states,) = rows_of(file, settings, part)
    samples = states.draw(None, 0)
    assert all(sample.use_labels for sample in samples)
    answers, others = sum(sample.target_count for sample in samples), settings.rows * settings.max_new_tokens / 2
    largest = max(sample.target_count for sample in samples)
    rest = 1 - share - (texts or 0)
    assert part * share * others / rest <= answers <= part * share * others / rest + largest


def test_no_more_is_read_than_a_step_may_write(tmp_path: Path) -> None:
    settings = Distill(documents=0.8, rows=2, max_new_tokens=512)
    most = settings.rows * settings.max_new_tokens
    for prompt in ("Q?", "A question of many words. " * 5):
        (states,) = rows_of(save_conversations(tmp_path, "A", count=500, prompt=prompt), settings)
        samples = states.draw(None, 0)
        tokens = sum(len(sample.tokens) for sample in samples)
        assert 0.8 * most < tokens <= 1.01 * most
        drawn = [sample.tokens for step in range(3) for sample in states.draw(None, step)]
        assert len({tuple(tokens) for tokens in drawn}) == 3 * states.rows, "no row twice before all were read"


def test_a_conversation_is_no_longer_than_the_model_reads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    change_json(save_tiny(tmp_path / "base") / "config.json", max_position_embeddings=6)
    encoded = [([1] * 9, [False, False, True] * 3), ([1] * 7, [False] * 6 + [True])]
    for window in (None, 512):
        [sample] = conversation_samples(encoded, str(tmp_path / "base"), window)
        assert sample.tokens == [1] * 6
    assert caplog.text.count("first 6 tokens of their conversations. Split them") == 2


def test_conversations_without_answer_are_omitted_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begins = {"messages": [{"role": "assistant", "content": "It begins with an answer."}]}
    unanswered = {"messages": [{"role": "user", "content": "No answer?"}]}
    answered = [{"messages": exchange(f"{i}. Question?", "An answer.")} for i in range(3)]
    settings, file = Distill(documents=0.2, rows=2, max_new_tokens=64), tmp_path / "chats.jsonl"
    (states,) = rows_of(write_jsonl(file, [*answered, begins, unanswered]), settings)
    assert len(states.samples) in (3, 4)  # the template may render the fourth
    assert "of 5 conversations are not learned" in caplog.text
    assert rows_of(write_jsonl(file, [unanswered]), settings) == []
