"""A model whose tokenizer puts a BOS before plain text reads no document without it; others read what they did."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pipelines.training.stages import Stages

from pipelines.documents import document_end, document_start, read_corpus
from pipelines.documents.snapshot import CorpusSnapshot, save_snapshot
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.synthetic.prefixes import as_prefix_prompts
from pipelines.synthetic.unprompted_texts import generate_texts
from recovery.engines import Generation, Sampling
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat
from recovery.samples import Sample
from tests.models import BOS, save_tiny, tiny_tokenizer
from tests.pipelines.synthetic.test_unprompted_texts import PAGE, Pages

WINDOW = 24
PLAIN, BEGINS = (Chat.from_tokenizer(tiny_tokenizer(adds_bos=adds_bos)) for adds_bos in (False, True))


class Listened(Pages):
    def __init__(self, chat: Chat, pages: Sequence[str]):
        super().__init__(chat, pages)
        self.first: set[int] = set()

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        self.first |= {prompt[0] for prompt in prompts}
        return super().generate(prompts, sampling)


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusSnapshot:
    (tmp_path / "docs").mkdir()
    for i in range(8):
        (tmp_path / "docs" / f"{i}.txt").write_text(PAGE.format(i) * (1 + i % 3))
    return save_snapshot(tmp_path / "home", read_corpus(tmp_path / "docs"))


def rows_of(folder: Path, corpus: CorpusSnapshot, *, across: bool, **model: bool) -> list[Sample]:
    """All rows of a mid-training's epoch."""
    project = Project.open(folder, str(save_tiny(folder / "base", **model)))
    settings = apply_overrides(
        defaults_for(SMALL_MODEL_PARAMETERS), {"midtrain": {"window": WINDOW, "cross_document_attention": across}}
    )
    stages = Stages(project, settings, Job("midtrain", {}, 0), None, 0)
    documents = stages._documents(load_chat(project.base), [corpus], 1)
    nobody: Any = None
    return [row for step in range(len(documents.windows)) for row in documents.draw(nobody, step)]


@pytest.mark.parametrize("across", [True, False])
def test_mid_training_reads_rows_that_begin_with_it(tmp_path: Path, corpus: CorpusSnapshot, across: bool) -> None:
    rows = rows_of(tmp_path, corpus, across=across, adds_bos=True)
    assert all(row.tokens[0] == BOS and BOS not in row.tokens[1:] and not any(row.targets[:2]) for row in rows)
    assert max(len(row.tokens) for row in rows) == WINDOW + 1
    if across:
        assert sum(row.target_count for row in rows) == sum(len(text) + 1 for text in corpus.texts) - 1


@pytest.mark.parametrize("across", [True, False])
def test_without_it_nothing_stands_before_a_row(tmp_path: Path, corpus: CorpusSnapshot, across: bool) -> None:
    rows = rows_of(tmp_path, corpus, across=across)
    assert all(row.targets == [False] + [True] * (len(row.tokens) - 1) for row in rows)
    if across:
        assert sorted(len(row.tokens) for row in rows)[1:] == [WINDOW + 1] * (len(rows) - 1)


def test_a_page_is_empty_but_for_it() -> None:
    assert document_start(BEGINS) == BOS
    assert document_start(PLAIN) == document_end(PLAIN.tokenizer)
    for chat in (PLAIN, BEGINS):
        listened = Listened(chat, [PAGE.format(i) for i in range(20)])
        assert len(generate_texts(listened, chat, 20, 200, seed=0)) == 20
        assert listened.first == {document_start(chat)}


def test_an_opening_begins_with_it() -> None:
    for chat in (PLAIN, BEGINS):
        (prompt,) = as_prefix_prompts(["So <bos> it"], chat)
        assert prompt.tokens[0] == document_start(chat)
        assert BOS not in prompt.tokens[1:]  # what a document spells is text
        assert chat.text(prompt.tokens[1:]) == "So <bos> it"
