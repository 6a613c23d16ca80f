"""Diversity of sampled answers. Reverse KL and rewards narrow the distribution, which greedy scores do not show."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

from evals.results import Item, Metric, Result, item_key
from evals.subject import Answer, Subject, strip_thinking, with_cost_meter
from evals.suites.instruction_following import Prompt, judge
from evals.suites.knowledge import Grade, Question, matches_reference
from recovery.engines import Generation, Sampling
from recovery.errors import RecoverError

SAMPLES = 8
MAX_NEW_TOKENS = 320


def prompt_diversity(subject: Subject, prompts: Sequence[Prompt], *, data: str, **options: int) -> Result:
    """Measure the diversity of replies to instructions; a reply passes if it follows all of them."""
    by_text = {prompt.text: prompt for prompt in prompts}
    return _diversity(subject, list(by_text), lambda text, reply: judge(by_text[text], reply).passed, data, **options)


def question_diversity(
    subject: Subject, questions: Sequence[Question], grade: Grade = matches_reference, *, data: str, **options: int
) -> Result:
    """Measure the diversity of answers to questions."""
    by_text = {question.text: question for question in questions}
    return _diversity(subject, list(by_text), lambda text, reply: grade(reply.text, by_text[text]), data, **options)


def pass_at(k: int, samples: int, passes: int) -> float:
    """Return pass@k: the chance that k samples, drawn without replacement, include a pass (Chen et al. 2021)."""
    return 1.0 - math.comb(samples - passes, k) / math.comb(samples, k)


def _diversity(
    subject: Subject,
    prompts: list[str],
    passes: Callable[[str, Answer], bool],
    data: str,
    *,
    samples: int = SAMPLES,
    max_new_tokens: int = MAX_NEW_TOKENS,
    seed: int = 0,
) -> Result:
    """Sample replies to each prompt at temperature 1, the model's own distribution."""
    if samples < 2:
        raise RecoverError("Diversity needs at least 2 samples per prompt. Ask for more.")
    subject, cost = with_cost_meter(subject)
    ids = [tokens for prompt in prompts for tokens in [subject.chat.prompt(prompt)] * samples]
    generations = subject.engine.generate(ids, Sampling(max_new_tokens, temperature=1.0, seed=seed))
    groups = [generations[i * samples : (i + 1) * samples] for i in range(len(prompts))]
    items = [_item(subject, prompt, group, passes) for prompt, group in zip(prompts, groups, strict=True)]
    counts = [sum(item.verdicts["passed"]) for item in items]
    metrics = {
        f"pass@{samples}": Metric.from_values([pass_at(samples, samples, c) for c in counts]),
        "pass@1": Metric.from_values([pass_at(1, samples, c) for c in counts]),
        "distinct": Metric.from_values([item.verdicts["distinct"] for item in items]),
        "answer_entropy": Metric.from_values([item.verdicts["answer_entropy"] for item in items]),
        # The mean negative log-likelihood of sampled tokens estimates the entropy of their distribution.
        "token_entropy": Metric.from_ratio(
            [-sum(map(sum, (g.logprobs for g in group))) for group in groups],
            [sum(len(g.logprobs) for g in group) for group in groups],
        ),
    }
    settings = {"samples": samples, "max_new_tokens": max_new_tokens, "seed": seed, "thinking": subject.thinking}
    return Result("diversity", "drift", data, metrics, items, settings, *cost())


def _item(subject: Subject, prompt: str, group: list[Generation], passes: Callable[[str, Answer], bool]) -> Item:
    replies = [Answer(strip_thinking(subject.chat.text(g.tokens)), g.finished) for g in group]
    passed = [passes(prompt, reply) for reply in replies]
    counts = Counter(reply.text for reply in replies)
    shares = [count / len(replies) for count in counts.values()]
    verdicts = {
        "passed": passed,
        "distinct": len(counts) / len(replies),
        "answer_entropy": -math.fsum(share * math.log(share) for share in shares),
    }
    return Item(item_key(prompt), prompt, replies[0].text, any(passed), verdicts)
