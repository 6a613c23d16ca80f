import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from evals.drift import pass_at, prompt_diversity, question_diversity
from evals.subject import Subject
from evals.suites.instruction_following import Prompt
from evals.suites.knowledge import Question
from recovery.engines import Generation, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from tests.evals.fakes import EOS, fake_subject
from tests.models import tiny_student


class Rotating:
    """Replies to a prompt with its answers in turn; the log-likelihood of every token is -1."""

    def __init__(self, answers: dict[str, list[str]]):
        self.turns = {prompt: itertools.cycle(replies) for prompt, replies in answers.items()}

    def generate(self, prompts: Sequence[list[int]], sampling: Sampling) -> list[Generation]:
        assert sampling.temperature == 1.0
        texts = ["".join(map(chr, p)).removeprefix("<user>").removesuffix("<assistant>") for p in prompts]
        replies = [[*map(ord, next(self.turns[text])), EOS] for text in texts]
        return [Generation(tokens, [-1.0] * len(tokens), True) for tokens in replies]


def rotating(answers: dict[str, list[str]]) -> Subject:
    return Subject(Rotating(answers), fake_subject("x").chat)  # type: ignore[arg-type]


def test_the_metrics_of_a_narrow_and_a_wide_distribution() -> None:
    subject = rotating({"Who?": ["Ada", "Bo", "Cy", "Ada"], "When?": ["1", "1", "1", "1"]})
    result = question_diversity(subject, [Question("Who?", "Ada"), Question("When?", "2")], data="q", samples=4)
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
    result = prompt_diversity(rotating({"Say it.": ["a, b", "a b"]}), [prompt], data="p", samples=2)
    assert result.metrics["pass@1"].value == 0.5
    assert result.metrics["pass@2"].value == 1.0


@pytest.mark.parametrize(("k", "samples", "passes"), [(1, 5, 2), (2, 5, 2), (3, 4, 1), (4, 4, 0), (3, 5, 4)])
def test_pass_at_k_is_the_mean_over_all_draws_of_k(k: int, samples: int, passes: int) -> None:
    draws = list(itertools.combinations([True] * passes + [False] * (samples - passes), k))
    assert pass_at(k, samples, passes) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_token_entropy_estimates_the_models_exact_entropy(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    subject = Subject(TransformersEngine(student), student.chat)
    logits = student.model(torch.tensor([student.chat.prompt("Hi")])).logits[0, -1].double()
    exact = float(torch.distributions.Categorical(logits=logits.detach()).entropy())
    result = question_diversity(subject, [Question("Hi", "x")], data="q", samples=600, max_new_tokens=1)
    assert result.metrics["token_entropy"].value == pytest.approx(exact, abs=0.2)
    assert result.metrics["distinct"].value > 0.02


def test_diversity_needs_two_samples() -> None:
    with pytest.raises(RecoverError, match="at least 2"):
        question_diversity(fake_subject("x"), [Question("a", "b")], data="q", samples=1)
