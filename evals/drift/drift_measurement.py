"""Drift: how far the states that a model visits have moved from those of the clean model.

Both models answer the same prompts. The states are prefixes of their rollouts, compared by word features and by the
clean model's hidden states. Reported with them is the KL per token to the clean model, on the current model's rollouts
and on a new task; the latter is said to predict forgetting.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np

from evals.cost_meter import CostMeter
from evals.drift.distances import States, centroid_distance, mmd, sliced_wasserstein
from evals.drift.features import hidden_features, lexical_features, word_set
from evals.drift.rollouts import Rollout, adapter_disabled, reply_sample, sample_rollouts, transformers_engine
from evals.drift.token_kl import token_kl
from evals.results import Item, Metric, Result, item_key
from recovery.engines import Engine
from recovery.errors import RecoverError
from recovery.models.students import Student
from recovery.samples import Sample

STATES_PER_ROLLOUT = 8
MAX_NEW_TOKENS = 128
UNKNOWN = (float("nan"), float("nan"))

OpenEngine = Callable[[Student], AbstractContextManager[Engine]]


def measure_drift(
    current: Student,
    clean: Student,
    prompts: Sequence[str],
    *,
    data: str,
    open_engine: OpenEngine = transformers_engine,
    new_task: Sequence[Sample] = (),
    max_new_tokens: int = MAX_NEW_TOKENS,
    seed: int = 0,
) -> Result:
    """Measure the distances between both models' rollouts on the prompts, and the KL per token on `new_task`."""
    prompts = list(dict.fromkeys(prompts))
    if len(prompts) < 2:
        raise RecoverError("Drift needs at least two different prompts. Give more of them.")
    meter = CostMeter()
    with open_engine(current) as engine:
        after = sample_rollouts(meter.wrap(engine), current, prompts, max_new_tokens, seed)
    # Another seed: with the same one, equal models would write the same, and differ less than independent samples do.
    with adapter_disabled(clean), open_engine(clean) as engine:
        before = sample_rollouts(meter.wrap(engine), clean, prompts, max_new_tokens, seed + 1)
    metrics: dict[str, Metric] = {}
    with adapter_disabled(clean):
        for kind in ("lexical", "hidden"):
            metrics |= _distances(kind, _states(kind, before, clean), _states(kind, after, clean), seed)
    replies = [(clean.chat.text(a.reply), clean.chat.text(b.reply)) for a, b in zip(before, after, strict=True)]
    overlaps = [jaccard(a, b) for a, b in replies]
    metrics["jaccard"] = Metric.from_values(overlaps)
    reply_samples = [reply_sample(rollout) for rollout in after]
    metrics |= token_kl(current, clean, reply_samples)
    if new_task:
        metrics |= {f"{name}/new_task": metric for name, metric in token_kl(current, clean, new_task).items()}
    # Rollouts are read once for the hidden states; samples are read by both models for the KL.
    meter.read += sum(len(r.tokens) for r in (*before, *after))
    meter.read += 2 * sum(len(sample.tokens) for sample in (*reply_samples, *new_task))
    items = [
        Item(item_key(prompt), prompt, b, a == b, {"clean": a, "jaccard": overlap})
        for prompt, (a, b), overlap in zip(prompts, replies, overlaps, strict=True)
    ]
    settings = {"max_new_tokens": max_new_tokens, "seed": seed, "states_a_rollout": STATES_PER_ROLLOUT}
    return Result("drift", "drift", data, metrics, items, settings, *meter.cost())


def jaccard(a: str, b: str) -> float:
    """Jaccard similarity of the two texts' word sets."""
    first, second = word_set(a), word_set(b)
    return len(first & second) / len(first | second) if first | second else 1.0


def _states(kind: str, rollouts: list[Rollout], clean: Student) -> States:
    prefixes = [(i, r, prefix) for i, r in enumerate(rollouts) for prefix in r.prefixes(STATES_PER_ROLLOUT)]
    owners = np.array([i for i, _, _ in prefixes])
    if kind == "lexical":
        return States(lexical_features([clean.chat.text(prefix) for _, _, prefix in prefixes]), owners)
    contexts = [r.tokens[: len(r.tokens) - len(r.reply) + len(prefix)] for _, r, prefix in prefixes]
    return States(hidden_features(clean, contexts), owners)


def _distances(kind: str, before: States, after: States, seed: int) -> dict[str, Metric]:
    n, discrepancy = len(before.features) + len(after.features), mmd(before, after, seed=seed)
    values = {
        f"mmd/{kind}": discrepancy.value,
        f"mmd_p/{kind}": discrepancy.p_value,
        f"centroid/{kind}": centroid_distance(before, after),
        f"sliced_wasserstein/{kind}": sliced_wasserstein(before, after, seed=seed),
    }
    return {name: Metric(value, n, UNKNOWN[0], UNKNOWN) for name, value in values.items()}
