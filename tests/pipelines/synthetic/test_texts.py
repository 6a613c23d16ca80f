"""What the base writes on an empty page: documents, kept once, and no chats."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from evals.subject import Subject
from pipelines.synthetic.texts import GeneratedTexts, generate_texts
from recovery.engines import Generation, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.chat import Chat
from recovery.models.students import Student, load_student
from tests.models import tiny_tokenizer

PAGE = "The ferry sails at nine from the quay to the islands, day {}."


class Pages:
    """Begins one page after another, and goes on with the next of those that begin so."""

    def __init__(self, chat: Chat, pages: Sequence[str]):
        self.pages, self.asked, self.turn = [_spelt(chat, page) for page in pages], 0, Counter[int]()

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        self.asked += len(prompts)
        if sampling.max_new_tokens == 1:
            written = [self.pages[i % len(self.pages)][:1] for i in range(len(prompts))]
        else:
            written = [self._next(prompt[-1])[1 : 1 + sampling.max_new_tokens] for prompt in prompts]
        ends = self.pages[0][-1]
        return [Generation(tokens, [-1.0] * len(tokens), ends in tokens) for tokens in written]

    def _next(self, first: int) -> list[int]:
        begun = [page for page in self.pages if page[0] == first]
        self.turn[first] += 1
        return begun[self.turn[first] % len(begun)]

    def logprobs(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        raise NotImplementedError

    def sync(self, student: Student) -> None:
        raise NotImplementedError


def _spelt(chat: Chat, page: str) -> list[int]:
    return [*chat.tokenizer(page, add_special_tokens=False)["input_ids"], chat.tokenizer.eos_token_id]


def ignored(words: str) -> None: ...


@pytest.fixture
def chat() -> Chat:
    return Chat.from_tokenizer(tiny_tokenizer())


def test_pages_are_kept_and_chats_are_not(chat: Chat) -> None:
    pages = [PAGE.format(i) for i in range(20)]
    spoilt = ["<|im_start|>user\nSay something long about the ferry to the islands.", "user\nSay " + PAGE, "Too short."]
    turned = "The ferry sails at nine and then<|im_start|>user\nsays something of its own to us."
    kept = generate_texts(Pages(chat, [*pages, *spoilt, turned, pages[0]]), chat, 25, 200, seed=0)
    assert sorted(kept) == sorted(pages)


def test_a_page_without_room_for_its_end_ends_with_a_sentence(chat: Chat) -> None:
    pages = [f"{PAGE.format(i)} And back again before the night" for i in range(20)]
    [whole] = {generate_texts(Pages(chat, pages), chat, 20, 200, seed=0)[0][-5:]}
    assert whole == "night"
    cut = generate_texts(Pages(chat, pages), chat, 20, len(pages[0]) - 4, seed=0)
    assert sorted(cut) == sorted(PAGE.format(i) for i in range(20))


def test_what_comes_after_the_end_is_another_text(chat: Chat) -> None:
    pages = [f"{PAGE.format(i)}<|endoftext|>Another page, about nothing in particular at all." for i in range(20)]
    assert sorted(generate_texts(Pages(chat, pages), chat, 20, 400, seed=0)) == sorted(
        PAGE.format(i) for i in range(20)
    )


def test_a_base_that_writes_nothing_but_chats_is_refused(chat: Chat) -> None:
    with pytest.raises(RecoverError, match="--recollect 0"):
        generate_texts(Pages(chat, ["<|im_start|>user\nSay something about the ferry."]), chat, 100, 200, seed=0)


def test_they_are_written_once_for_one_model(chat: Chat, tmp_path: Path) -> None:
    writer = Pages(chat, [PAGE.format(i) for i in range(20)])

    @contextmanager
    def speaks() -> Iterator[Subject]:
        yield Subject(writer, chat)

    def of(model: str) -> GeneratedTexts:
        return GeneratedTexts(20, 200, model, 0, tmp_path)

    assert of("m").write(speaks) == 20
    first = writer.asked
    assert of("m").write(speaks) == 20
    assert writer.asked == first
    assert sorted(of("m").texts) == sorted(PAGE.format(i) for i in range(20))
    assert of("another").hash != of("m").hash
    of("another").write(speaks)
    assert writer.asked == 2 * first


def test_the_built_in_base_remembers_its_own_world() -> None:
    base = load_student(str(BASE), frozen=True)
    written = generate_texts(TransformersEngine(base), base.chat, 24, 128, seed=1)
    assert len(written) == 24
    assert not any("<|im_" in text or text.startswith("user") for text in written)
