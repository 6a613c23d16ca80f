from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from tokenizers import AddedToken

from evals.subject import Subject
from pipelines.job import Job
from pipelines.project.project import Project
from pipelines.settings.defaults import SMALL_MODEL_PARAMETERS, defaults_for
from pipelines.settings.resolve import apply_overrides
from pipelines.settings.schema import Midtrain, Mix, Settings
from pipelines.storage import ContentCache
from pipelines.synthetic import base_outputs
from pipelines.synthetic.base_outputs import (
    DISTILL_SEED,
    BaseOutputs,
    GeneratedTexts,
    answer_rows,
    generate_texts,
    sample_answers,
)
from pipelines.training.stage_context import Stage
from recovery.engines import Generation, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.lab import BASE
from recovery.models.chat_template import Chat
from recovery.models.students import Student, load_student
from recovery.samples import Sample
from recovery.states import Documents, Mixture
from tests.evals.fakes import fake_subject
from tests.models import BOS, tiny_tokenizer


@pytest.mark.release
def test_each_cycle_reads_other_texts_and_distils_on_yet_other_prompts(tmp_path: Path) -> None:
    project = Project.open(tmp_path)
    few = {"distill": {"prompts": 16, "max_new_tokens": 48}, "midtrain": {"generated_texts": 16}}
    job = Job("cycle", apply_overrides(defaults_for(SMALL_MODEL_PARAMETERS), few))

    def outputs(cycle: int) -> tuple[set[str], set[str], set[str]]:
        base = BaseOutputs(project, job.settings, Stage(project, job, None, cycle).generation_seed)
        texts = {text for generated in base.texts(is_default=True) for text in generated.texts}
        return {str(row.prompt) for row in base.answers(is_default=True)}, set(base.prompts(DISTILL_SEED)), texts

    first, second = outputs(1), outputs(2)
    assert all(first)
    assert outputs(1) == first  # as for a resumed job
    assert not first[0] & first[1]
    assert not (first[0] | first[1]) & (second[0] | second[1])
    assert not first[2] & second[2]


def test_only_what_a_base_cannot_write_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without vLLM, or with a full disk, the model would read documents alone."""
    base = BaseOutputs(Project.open(tmp_path), defaults_for(SMALL_MODEL_PARAMETERS), 0)
    monkeypatch.setattr(base_outputs, "open_subject", Mock(side_effect=RecoverError("vLLM cannot be imported")))
    for write in (base.answers, base.texts):
        with pytest.raises(RecoverError, match="cannot be imported"):
            write(is_default=True)


PAGE = "The ferry sails at nine from the quay to the islands, day {}."
PAGES = [PAGE.format(i) for i in range(20)]


class Pages:
    """Generates the first token of one page after another, then continues with the next page that begins with it."""

    def __init__(self, chat: Chat, pages: Sequence[str]):
        self.pages, self.prompts, self.turns = [_token_ids(chat, page) for page in pages], 0, Counter[int]()
        self.first_tokens = set[int]()  # of the prompts

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        self.prompts += len(prompts)
        self.first_tokens |= {prompt[0] for prompt in prompts}
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
    rejected = ["<|im_start|>user\nSay something long about the ferry.", "user\nSay " + PAGE, "Too short."]
    turns_into_chat = "The ferry sails at nine and then<|im_start|>user\nsays something of its own to us."
    texts = generate_texts(Pages(chat, [*PAGES, *rejected, turns_into_chat, PAGES[0]]), chat, 25, 200, seed=0)
    assert sorted(texts) == sorted(PAGES)


def test_a_text_may_have_line_breaks_that_are_added_tokens(chat: Chat) -> None:
    chat.tokenizer.add_tokens([AddedToken("\n", special=False, normalized=False)])
    pages = [f"{PAGE.format(i)}\nAnd back again." for i in range(20)]
    assert sorted(generate_texts(Pages(chat, pages), chat, 20, 200, seed=0)) == sorted(pages)


def test_a_text_that_is_cut_off_ends_with_a_full_sentence(chat: Chat) -> None:
    pages = [f"{page} And back again before the night" for page in PAGES]
    [whole] = {generate_texts(Pages(chat, pages), chat, 20, 200, seed=0)[0][-5:]}
    assert whole == "night"
    cut = generate_texts(Pages(chat, pages), chat, 20, len(pages[0]) - 4, seed=0)
    assert sorted(cut) == sorted(PAGES)


def test_a_text_ends_at_its_end_token(chat: Chat) -> None:
    pages = [f"{page}<|endoftext|>Another page, about nothing in particular at all." for page in PAGES]
    assert sorted(generate_texts(Pages(chat, pages), chat, 20, 400, seed=0)) == sorted(PAGES)


def test_a_base_that_writes_nothing_but_chats_is_refused(chat: Chat) -> None:
    with pytest.raises(RecoverError, match=r"midtrain\.mix\.texts=0"):
        generate_texts(Pages(chat, ["<|im_start|>user\nSay something about the ferry."]), chat, 100, 200, seed=0)


def test_texts_are_written_once_for_one_seed(chat: Chat, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Pages(chat, PAGES)
    midtrain = Midtrain(generated_texts=20, window=200, mix=Mix(texts=0.3))

    @contextmanager
    def open_subject(path: str, engine_name: str) -> Iterator[Subject]:
        yield Subject(engine, chat)

    def texts_of(seed: int) -> GeneratedTexts:
        [texts] = BaseOutputs(project, Settings(midtrain=midtrain), seed).texts(is_default=True)
        return texts

    monkeypatch.setattr("pipelines.synthetic.base_outputs.open_subject", open_subject)
    assert sorted(texts_of(0).texts) == sorted(PAGES)
    first = engine.prompts
    assert texts_of(0) == texts_of(0)
    assert engine.prompts == first
    assert texts_of(1).hash != texts_of(0).hash
    assert engine.prompts == 2 * first


def test_the_built_in_base_writes_documents() -> None:
    base = load_student(str(BASE), frozen=True)
    texts = generate_texts(TransformersEngine(base), base.chat, 8, 96, seed=1)
    assert len(texts) == 8
    assert not any("<|im_" in text or text.startswith("user") for text in texts)


@pytest.mark.parametrize("adds_bos", [False, True])
def test_texts_are_generated_from_the_start_of_a_document_alone(adds_bos: bool) -> None:
    chat = Chat.from_tokenizer(tiny_tokenizer(adds_bos=adds_bos))
    assert chat.document_start == (BOS if adds_bos else chat.separator)
    engine = Pages(chat, PAGES)
    assert len(generate_texts(engine, chat, 20, 200, seed=0)) == 20
    assert engine.first_tokens == {chat.document_start}


PROMPTS = [f"Say {number}." for number in range(10)]


def answers_of(
    subject: Subject, folder: Path, weights: str = "m", max_new_tokens: int = 40, keep_cut: bool = False
) -> list[Sample]:
    inputs = (subject.chat, PROMPTS, ContentCache(folder), weights)
    return sample_answers(lambda: nullcontext(subject), *inputs, max_new_tokens=max_new_tokens, keep_cut=keep_cut)


def test_only_the_answer_is_a_target_and_it_is_sampled_once(tmp_path: Path) -> None:
    subject = fake_subject(lambda message: f"Well, {message}")
    rows = answers_of(subject, tmp_path)
    for prompt, row in zip(PROMPTS, rows, strict=True):
        targets = [token for token, target in zip(row.tokens, row.targets, strict=True) if target]
        assert subject.chat.text(targets) == f"Well, {prompt}"
    assert len(subject.engine.prompts) == 10
    assert answers_of(subject, tmp_path) == rows
    assert len(subject.engine.prompts) == 10
    answers_of(subject, tmp_path, weights="another")
    assert len(subject.engine.prompts) == 20


def test_answers_that_do_not_end_are_dropped_unless_they_are_to_be_kept(tmp_path: Path) -> None:
    subject = fake_subject(lambda message: "short" if "3" in message else "long " * 50)
    assert [row.prompt for row in answers_of(subject, tmp_path)] == ["Say 3."]
    with pytest.raises(RecoverError, match="None of the base's answers ended within 4 tokens"):
        answers_of(subject, tmp_path, max_new_tokens=4)
    assert [row.prompt for row in answers_of(subject, tmp_path, keep_cut=True)] == PROMPTS
    assert len(answers_of(subject, tmp_path)) == 1  # another file of the cache


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_share_is_of_target_tokens(share: float) -> None:
    answers = [Sample([1] * 12, [False] * 2 + [True] * 10) for _ in range(50)]
    documents = Documents([[1] * 999] * 40, 0, window=100, rows=8)
    mixture = Mixture(documents, answer_rows(answers, share, documents.rows * documents.window))
    for step in range(4):
        drawn = mixture.draw(None, step)
        replay = sum(row.target_count for row in drawn if len(row.tokens) == 12)
        assert replay / sum(row.target_count for row in drawn) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("length", [180, 240, 300])
def test_the_share_holds_on_average_where_a_step_has_room_for_a_part_of_an_answer(share: float, length: int) -> None:
    answers = [Sample([1] * (length + 1), [False] + [True] * length) for _ in range(50)]
    states, targets = answer_rows(answers, share, 512), 0
    for step in range(200):
        targets += sum(row.target_count for row in states.draw(None, step))
    assert targets / (targets + 200 * 512) == pytest.approx(share, abs=0.005)
