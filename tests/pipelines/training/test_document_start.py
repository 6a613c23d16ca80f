"""Models whose tokenizer puts a BOS before every text get it before documents, texts and prefixes; others do not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines.documents import read_corpus
from pipelines.documents.corpus import CorpusSnapshot, save_snapshot
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.synthetic.base_outputs import generate_texts
from pipelines.synthetic.passage_prompts import as_prefix_prompts
from pipelines.training.document_rows import document_rows
from pipelines.training.stage_context import Stage
from recovery.engines import Generation, Sampling
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat
from recovery.samples import Sample
from tests.models import BOS, save_tiny, tiny_tokenizer
from tests.pipelines.synthetic.test_unprompted_texts import PAGE, Pages

WINDOW = 24
WITHOUT_BOS, WITH_BOS = (Chat.from_tokenizer(tiny_tokenizer(adds_bos=adds_bos)) for adds_bos in (False, True))


class RecordingPages(Pages):
    """Records the first tokens of the prompts."""

    def __init__(self, chat: Chat, pages: Sequence[str]):
        super().__init__(chat, pages)
        self.first_tokens: set[int] = set()

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        self.first_tokens |= {prompt[0] for prompt in prompts}
        return super().generate(prompts, sampling)


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusSnapshot:
    (tmp_path / "docs").mkdir()
    for i in range(8):
        (tmp_path / "docs" / f"{i}.txt").write_text(PAGE.format(i) * (1 + i % 3))
    return save_snapshot(tmp_path / "home", read_corpus(tmp_path / "docs"))


def rows_of(folder: Path, corpus: CorpusSnapshot, **model: bool) -> list[Sample]:
    """All rows of one epoch of mid-training, one row a step."""
    project = Project.open(folder, str(save_tiny(folder / "base", **model)))
    midtrain = {"window": WINDOW, "rows": 1, "mix": {"answers": 0.0, "texts": 0.0}}
    settings = apply_overrides(defaults_for(SMALL_MODEL_PARAMETERS), {"midtrain": midtrain})
    stage = Stage(project, Job("midtrain", settings), None)
    documents = document_rows(stage, load_chat(project.base), [corpus], rows=1)
    student: Any = None
    return [row for step in range(len(documents.windows)) for row in documents.draw(student, step)]


def test_mid_training_rows_begin_with_the_bos(tmp_path: Path, corpus: CorpusSnapshot) -> None:
    rows = rows_of(tmp_path, corpus, adds_bos=True)
    assert all(row.tokens[0] == BOS and BOS not in row.tokens[1:] and not any(row.targets[:2]) for row in rows)
    assert max(len(row.tokens) for row in rows) == WINDOW + 1
    assert sum(row.target_count for row in rows) == sum(len(text) + 1 for text in corpus.texts) - 1


def test_without_a_bos_nothing_precedes_a_row(tmp_path: Path, corpus: CorpusSnapshot) -> None:
    rows = rows_of(tmp_path, corpus)
    assert all(row.targets == [False] + [True] * (len(row.tokens) - 1) for row in rows)
    assert sorted(len(row.tokens) for row in rows)[1:] == [WINDOW + 1] * (len(rows) - 1)


def test_unprompted_texts_are_generated_from_the_bos_alone() -> None:
    assert WITH_BOS.document_start == BOS
    assert WITHOUT_BOS.document_start == WITHOUT_BOS.separator
    for chat in (WITHOUT_BOS, WITH_BOS):
        engine = RecordingPages(chat, [PAGE.format(i) for i in range(20)])
        assert len(generate_texts(engine, chat, 20, 200, seed=0)) == 20
        assert engine.first_tokens == {chat.document_start}


def test_a_prefix_begins_with_the_bos() -> None:
    for chat in (WITHOUT_BOS, WITH_BOS):
        (prompt,) = as_prefix_prompts(["So <bos> it"], chat)
        assert prompt.tokens[0] == chat.document_start
        assert BOS not in prompt.tokens[1:]  # the name of a special token in a document is plain text
        assert chat.text(prompt.tokens[1:]) == "So <bos> it"
