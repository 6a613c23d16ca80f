import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from evals.drift import Clean, measure_diversity, measure_drift, passage_samples, token_kl
from evals.results import Result
from evals.subject import Subject
from evals.suites.instruction_following import Prompt
from evals.suites.knowledge import Question
from evals.suites.training_texts import WINDOW
from recovery.engines.transformers import TransformersEngine
from recovery.models.adapters import Adapter
from recovery.models.chat_template import Chat
from recovery.models.students import Student, load_student
from recovery.samples import Sample
from recovery.teachers import AdapterOffTeacher, FrozenTeacher
from tests.evals.fakes import fake_subject
from tests.models import BOS, save_tiny, tiny_student, tiny_tokenizer

PROMPTS = [f"Say something of the number {i}." for i in range(24)]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Student:
    return tiny_student(tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Student:
    """The same model with scaled logits, so that it repeats itself."""
    student = tiny_student(tmp_path_factory.mktemp("moved"))
    student.model.get_decoder().norm.weight.data *= 4
    return student


def drift(current: Student, clean: Clean, new_task: list[Sample] | None = None) -> Result:
    engine = TransformersEngine(current)
    return measure_drift(current, clean, engine, PROMPTS, data="own", new_task=new_task or [], max_new_tokens=24)


def test_the_kl_is_the_sum_over_the_vocabulary(clean: Student, moved: Student) -> None:
    rows = [Sample([5, 9, 30, 41, 7], [False, False, True, True, True]), Sample([8, 61, 12], [False, True, False])]
    from_clean, to_clean = [], []
    for row in rows:
        ids = torch.tensor([row.tokens])
        p = torch.log_softmax(moved.model(ids).logits[0].detach().double(), -1)
        q = torch.log_softmax(clean.model(ids).logits[0].detach().double(), -1)
        for at, is_target in enumerate(row.targets):
            if is_target:
                from_clean.append(float((q[at - 1].exp() * (q[at - 1] - p[at - 1])).sum()))
                to_clean.append(float((p[at - 1].exp() * (p[at - 1] - q[at - 1])).sum()))
    metrics = token_kl(moved, FrozenTeacher(clean.path), rows)
    assert metrics["kl_from_clean"].value == pytest.approx(np.mean(from_clean), rel=1e-4)
    assert metrics["kl_to_clean"].value == pytest.approx(np.mean(to_clean), rel=1e-4)
    assert metrics["kl_from_clean"].n == 2


def test_the_base_under_an_adapter_equals_the_base_loaded_separately(tmp_path: Path) -> None:
    base = str(save_tiny(tmp_path))
    student, separate = load_student(base, adapter=Adapter(rank=4)), FrozenTeacher(base)
    torch.manual_seed(0)
    for name, weight in student.model.named_parameters():
        if ".lora_B." in name:
            weight.data.normal_(std=0.2)
    trainable = [p.requires_grad for p in student.model.parameters()]
    new_task = passage_samples(separate.model.chat, ["A new task."])
    result, expected = (drift(student, clean, new_task) for clean in (AdapterOffTeacher(student, base), separate))
    assert {n: m.value for n, m in result.metrics.items()} == {n: m.value for n, m in expected.metrics.items()}
    assert result.metrics["kl_from_clean"].value > 0.01
    assert [p.requires_grad for p in student.model.parameters()] == trainable


def test_padding_rows_of_a_head_do_not_change_the_kl(tmp_path: Path) -> None:
    clean, padded = (FrozenTeacher(str(save_tiny(tmp_path / str(n), padding=n))) for n in (0, 5))
    shared = {n: p.data for n, p in clean.model.model.named_parameters()}
    for name, weight in padded.model.model.named_parameters():
        weight.data[: len(shared[name])] = shared[name]
    rows = [Sample([5, 9, 30, 41, 7], [False, False, True, True, True])]
    for current, teacher in ((padded, clean), (clean, padded)):
        metrics = token_kl(current.model, teacher, rows)
        assert metrics["kl_from_clean"].value == pytest.approx(0.0, abs=1e-6)
        assert metrics["kl_to_clean"].value == pytest.approx(0.0, abs=1e-6)


def test_a_passage_starts_with_the_document_start_token() -> None:
    plain, begins = (Chat.from_tokenizer(tiny_tokenizer(adds_bos=value)) for value in (False, True))
    ids = plain.tokenizer("A pump")["input_ids"]
    (row,) = passage_samples(plain, ["A pump"])
    assert (row.tokens, row.targets) == (ids, [False, True, True, True, True, True])
    (row,) = passage_samples(begins, ["A pump"])
    assert (row.tokens, row.targets) == ([BOS, *ids], [False, True, True, True, True, True, True])
    (long,) = passage_samples(begins, ["a" * 5000])
    assert len(long.tokens) == WINDOW


def rotating(answers: dict[str, list[str]]) -> Subject:
    """It replies to a prompt with its answers in turn; the log-likelihood of every token is -1."""
    turns = {prompt: itertools.cycle(replies) for prompt, replies in answers.items()}
    return fake_subject(lambda message: next(turns[message]))


def test_the_metrics_of_a_narrow_and_a_wide_distribution() -> None:
    subject = rotating({"Who?": ["Ada", "Bo", "Cy", "Ada"], "When?": ["1", "1", "1", "1"]})
    result = measure_diversity(subject, [Question("Who?", "Ada"), Question("When?", "2")], data="q", samples=4)
    values = {name: metric.value for name, metric in result.metrics.items()}
    assert values["pass@1"] == pytest.approx((2 / 4 + 0) / 2)
    assert values["pass@4"] == pytest.approx((1 + 0) / 2)
    assert values["distinct"] == pytest.approx((3 / 4 + 1 / 4) / 2)
    assert values["answer_entropy"] == pytest.approx((0.5 * math.log(2) + 0.5 * math.log(4)) / 2)
    assert values["token_entropy"] == pytest.approx(1.0)
    assert [item.passed for item in result.items] == [True, False]
    assert result.data == "q"


def test_a_reply_passes_if_it_follows_all_instructions() -> None:
    prompt = Prompt("1", "Say it.", ["punctuation:no_comma"], [{}])
    result = measure_diversity(rotating({"Say it.": ["a, b", "a b"]}), [prompt], data="p", samples=2)
    assert result.metrics["pass@1"].value == 0.5
    assert result.metrics["pass@2"].value == 1.0


def test_token_entropy_estimates_the_models_exact_entropy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evals.drift.DIVERSITY_TOKENS", 1)
    student = tiny_student(tmp_path)
    subject = Subject(TransformersEngine(student), student.chat)
    logits = student.model(torch.tensor([student.chat.prompt("Hi")])).logits[0, -1].double()
    exact = float(torch.distributions.Categorical(logits=logits.detach()).entropy())
    result = measure_diversity(subject, [Question("Hi", "x")], data="q", samples=600)
    assert result.metrics["token_entropy"].value == pytest.approx(exact, abs=0.2)
    assert result.metrics["distinct"].value > 0.02
