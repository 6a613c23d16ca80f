"""lm-eval's own `hf` model and ours give the same texts and likelihoods for a small random model."""

import pytest
from lm_eval.api.instance import Instance

from evals.harness import HarnessModel
from evals.subject import Subject
from recovery.engines.transformers import TransformersEngine
from tests.models import tiny_student

TEXTS = ["Write a poem about tulips. Use no commas.", "What is 12 + 30?", "Who founded Orlan, and when?", "Hi"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[HarnessModel, object]:
    from lm_eval.models.huggingface import HFLM

    student = tiny_student(tmp_path_factory.mktemp("tiny"))
    ours = HarnessModel(Subject(TransformersEngine(student), student.chat))
    return ours, HFLM(pretrained=student.model, tokenizer=student.chat.tokenizer, batch_size=2, max_length=256)


def requests(kind: str, arguments: list[tuple]) -> list[Instance]:
    return [Instance(kind, {}, argument, i) for i, argument in enumerate(arguments)]


def test_the_prompts_are_the_same(pair: tuple) -> None:
    ours, theirs = pair
    for text in TEXTS:
        turns = [{"role": "user", "content": text}]
        assert ours.apply_chat_template(turns) == theirs.apply_chat_template(turns)
        assert ours.tok_encode(ours.apply_chat_template(turns)) == ours.subject.chat.prompt(text)


@pytest.mark.parametrize("until", [[], ["e"], ["o", "\n\n"]])
def test_the_replies_are_the_same(pair: tuple, until: list[str]) -> None:
    ours, theirs = pair
    options = {"until": until, "do_sample": False, "temperature": 0.0, "max_gen_toks": 40}
    prompts = [(ours.apply_chat_template([{"role": "user", "content": text}]), dict(options)) for text in TEXTS]
    mine = ours.generate_until(requests("generate_until", prompts))
    assert mine == theirs.generate_until(requests("generate_until", prompts), disable_tqdm=True)
    assert any(mine)


def test_the_likelihoods_are_the_same(pair: tuple) -> None:
    ours, theirs = pair
    context = ours.apply_chat_template([{"role": "user", "content": TEXTS[1]}])
    greedy = ours.generate_until(requests("generate_until", [(context, {"max_gen_toks": 4})]))[0]
    pairs = [(context, text) for text in ("42", " forty-two", "41", greedy)]
    pairs += [(TEXTS[0], " Tulips are red"), ("", "Tulips")]
    mine = ours.loglikelihood(requests("loglikelihood", pairs), disable_tqdm=True)
    expected = theirs.loglikelihood(requests("loglikelihood", pairs), disable_tqdm=True)
    assert [total for total, _ in mine] == pytest.approx([total for total, _ in expected], abs=1e-3)
    assert [is_greedy for _, is_greedy in mine] == [is_greedy for _, is_greedy in expected]


def test_the_likelihoods_of_long_texts_are_the_same(pair: tuple) -> None:
    ours, theirs = pair
    ours.tokenizer.model_max_length = 256
    texts = [("tulips and " * 120,), ("Hi",)]
    mine = ours.loglikelihood_rolling(requests("loglikelihood_rolling", texts))
    expected = theirs.loglikelihood_rolling(requests("loglikelihood_rolling", texts), disable_tqdm=True)
    assert mine == pytest.approx(expected, rel=1e-4)
