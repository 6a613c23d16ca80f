"""Unprompted texts of the base: documents without duplicates, and no chats."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from evals.subject import Subject
from pipelines.project.project import Project
from pipelines.settings.schema import Midtrain, Mix, Settings
from pipelines.synthetic.base_outputs import BaseOutputs, GeneratedTexts, generate_texts
from recovery.engines import Generation, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.chat_template import Chat
from recovery.models.students import Student, load_student
from tests.models import tiny_tokenizer

PAGE = "The ferry sails at nine from the quay to the islands, day {}."


class Pages:
    """Generates the first token of one page after another, then continues with the next page that begins with it."""

    def __init__(self, chat: Chat, pages: Sequence[str]):
        self.pages, self.prompts, self.turns = [_token_ids(chat, page) for page in pages], 0, Counter[int]()

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        self.prompts += len(prompts)
        if sampling.max_new_tokens == 1:
            outputs = [self.pages[i % len(self.pages)][:1] for i in range(len(prompts))]
        else:
            outputs = [self._next(prompt[-1])[1 : 1 + sampling.max_new_tokens] for prompt in prompts]
        end = self.pages[0][-1]
        return [Generation(tokens, [-1.0] * len(tokens), end in tokens) for tokens in outputs]

    def _next(self, first: int) -> list[int]:
        pages = [page for page in self.pages if page[0] == first]
        self.turns[first] += 1
        return pages[self.turns[first] % len(pages)]

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        raise NotImplementedError

    def sync(self, student: Student) -> None:
        raise NotImplementedError


def _token_ids(chat: Chat, page: str) -> list[int]:
    return [*chat.tokenizer(page, add_special_tokens=False)["input_ids"], chat.tokenizer.eos_token_id]


@pytest.fixture
def chat() -> Chat:
    return Chat.from_tokenizer(tiny_tokenizer())


def test_documents_are_accepted_and_chats_are_not(chat: Chat) -> None:
    pages = [PAGE.format(i) for i in range(20)]
    rejected = [
        "<|im_start|>user\nSay something long about the ferry to the islands.",
        "user\nSay " + PAGE,
        "Too short.",
    ]
    turns_into_chat = "The ferry sails at nine and then<|im_start|>user\nsays something of its own to us."
    texts = generate_texts(Pages(chat, [*pages, *rejected, turns_into_chat, pages[0]]), chat, 25, 200, seed=0)
    assert sorted(texts) == sorted(pages)


def test_a_text_that_is_cut_off_ends_with_a_full_sentence(chat: Chat) -> None:
    pages = [f"{PAGE.format(i)} And back again before the night" for i in range(20)]
    [whole] = {generate_texts(Pages(chat, pages), chat, 20, 200, seed=0)[0][-5:]}
    assert whole == "night"
    cut = generate_texts(Pages(chat, pages), chat, 20, len(pages[0]) - 4, seed=0)
    assert sorted(cut) == sorted(PAGE.format(i) for i in range(20))


def test_a_text_ends_at_its_end_token(chat: Chat) -> None:
    pages = [f"{PAGE.format(i)}<|endoftext|>Another page, about nothing in particular at all." for i in range(20)]
    assert sorted(generate_texts(Pages(chat, pages), chat, 20, 400, seed=0)) == sorted(
        PAGE.format(i) for i in range(20)
    )


def test_a_base_that_writes_nothing_but_chats_is_refused(chat: Chat) -> None:
    with pytest.raises(RecoverError, match=r"midtrain\.mix\.texts=0"):
        generate_texts(Pages(chat, ["<|im_start|>user\nSay something about the ferry."]), chat, 100, 200, seed=0)


def test_texts_are_written_once_for_one_seed(chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, project = Pages(chat, [PAGE.format(i) for i in range(20)]), Project.open(tmp_path)
    midtrain = Midtrain(generated_texts=20, window=200, mix=Mix(texts=0.3))

    @contextmanager
    def open_subject(path: str, engine_name: str) -> Iterator[Subject]:
        yield Subject(engine, chat)

    def texts_of(seed: int) -> GeneratedTexts:
        [texts] = BaseOutputs(project, Settings(midtrain=midtrain), seed).texts()
        return texts

    monkeypatch.setattr("pipelines.synthetic.base_outputs.open_subject", open_subject)
    assert sorted(texts_of(0).texts) == sorted(PAGE.format(i) for i in range(20))
    first = engine.prompts
    assert texts_of(0) == texts_of(0)
    assert engine.prompts == first
    assert texts_of(1).hash != texts_of(0).hash
    assert engine.prompts == 2 * first


def test_the_built_in_base_writes_documents() -> None:
    base = load_student(str(BASE), frozen=True)
    texts = generate_texts(TransformersEngine(base), base.chat, 24, 128, seed=1)
    assert len(texts) == 24
    assert not any("<|im_" in text or text.startswith("user") for text in texts)
