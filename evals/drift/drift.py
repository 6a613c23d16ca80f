"""How far the states that a model visits have moved from those of the clean model.

Both answer the same prompts. What they have written at several places of each rollout are the states; they are
compared as words and, seen through the clean model, as hidden states. Beside it stands the KL a token to the clean
model on given states: on those of the new task it is said to predict forgetting, which `foretells` puts to the test.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch

from evals.cost_meter import Meter
from evals.drift.distances import States, centroid_distance, mmd, sliced_wasserstein
from evals.drift.features import hidden, lexical, word_set
from evals.results import Item, Metric, Result, key_of
from evals.suites.knowledge import Question
from evals.suites.passage_recall import WINDOW
from recovery.batch import Batch, Sample, micro_batches
from recovery.engines import Engine, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.losses.chunked_loss import CHUNK_ELEMENTS, chunks
from recovery.losses.divergences import forward_kl, reverse_kl
from recovery.models.adapters import preserve_adapter_state
from recovery.models.chat import Chat
from recovery.models.students import Student

STATES_A_ROLLOUT = 8
MAX_NEW_TOKENS = 128
TOKENS_AT_ONCE = 8192
UNKNOWN = (float("nan"), float("nan"))

Writes = Callable[[Student], AbstractContextManager[Engine]]


@dataclass(frozen=True)
class Rollout:
    prompt: str
    tokens: list[int]  # the prompt's and then the reply's
    written: list[int]  # the reply's

    def prefixes(self, count: int) -> list[list[int]]:
        """Replies begun: the same number of each rollout, spread evenly over it."""
        ends = np.linspace(1, len(self.written), min(count, len(self.written))).astype(int)
        return [self.written[:end] for end in ends]


class Beneath(Student):
    """The model under another student's adapters: the same modules, which speak for it in its turn."""


@contextmanager
def turn_of(student: Student) -> Iterator[None]:
    if not isinstance(student, Beneath):
        yield
        return
    with preserve_adapter_state(student.model), student.model.disable_adapter():
        yield


def roll_out(engine: Engine, student: Student, prompts: Sequence[str], max_new_tokens: int, seed: int) -> list[Rollout]:
    before = [student.chat.prompt(prompt) for prompt in prompts]
    written = engine.generate(before, Sampling(max_new_tokens, seed=seed))
    return [Rollout(prompt, ids + g.tokens, g.tokens) for prompt, ids, g in zip(prompts, before, written, strict=True)]


def own_modules(student: Student) -> AbstractContextManager[Engine]:
    return nullcontext(TransformersEngine(student))


def measure_drift(
    current: Student,
    clean: Student,
    prompts: Sequence[str],
    *,
    data: str,
    writes: Writes = own_modules,
    new_task: Sequence[Sample] = (),
    max_new_tokens: int = MAX_NEW_TOKENS,
    seed: int = 0,
) -> Result:
    """Distances between what the two write to the same prompts, and the KL a token on the rows of a new task."""
    prompts = list(dict.fromkeys(prompts))
    if len(prompts) < 2:
        raise RecoverError("drift needs at least two different prompts")
    meter = Meter()
    with writes(current) as engine:
        after = roll_out(meter.over(engine), current, prompts, max_new_tokens, seed)
    # Luck of its own: with the same, equal models would write the same and differ less than chance has it.
    with turn_of(clean), writes(clean) as engine:
        before = roll_out(meter.over(engine), clean, prompts, max_new_tokens, seed + 1)
    metrics: dict[str, Metric] = {}
    with turn_of(clean):
        for kind in ("lexical", "hidden"):
            metrics |= _distances(kind, _states(kind, before, clean), _states(kind, after, clean), seed)
    said = [(clean.chat.text(a.written), clean.chat.text(b.written)) for a, b in zip(before, after, strict=True)]
    overlaps = [jaccard(a, b) for a, b in said]
    metrics["jaccard"] = Metric.of_values(overlaps)
    written = [written_row(rollout) for rollout in after]
    metrics |= token_kl(current, clean, written)
    if new_task:
        metrics |= {f"{name}/new_task": metric for name, metric in token_kl(current, clean, new_task).items()}
    # Once for the hidden states of each, and by both models for the KL.
    meter.read += sum(len(r.tokens) for r in (*before, *after)) + 2 * sum(len(r.tokens) for r in (*written, *new_task))
    items = [
        Item(key_of(prompt), prompt, b, a == b, {"clean": a, "jaccard": overlap})
        for prompt, (a, b), overlap in zip(prompts, said, overlaps, strict=True)
    ]
    settings = {"max_new_tokens": max_new_tokens, "seed": seed, "states_a_rollout": STATES_A_ROLLOUT}
    return Result("drift", "drift", data, metrics, items, settings, *meter.spent())


def rows_of_questions(chat: Chat, questions: Sequence[Question]) -> list[Sample]:
    """Right answers to the new task's questions, as the model would be asked."""
    return [_taught(chat.prompt(q.text), chat.tokenizer.encode(q.answer, add_special_tokens=False)) for q in questions]


def rows_of_passages(chat: Chat, passages: Sequence[str]) -> list[Sample]:
    """The new documents themselves, as they are read."""
    before = [] if chat.document_bos is None else [chat.document_bos]
    rows = [[*before, *chat.tokenizer.encode(text, add_special_tokens=False)][:WINDOW] for text in passages]
    return [_taught(ids[:1], ids[1:]) for ids in rows if len(ids) > 1]


def jaccard(a: str, b: str) -> float:
    """Words that both use, of all that either uses."""
    one, other = word_set(a), word_set(b)
    return len(one & other) / len(one | other) if one | other else 1.0


def token_kl(current: Student, clean: Student, rows: Sequence[Sample]) -> dict[str, Metric]:
    """Exact KL a token between the two models on the target tokens of the rows, both ways; a row is a sample."""
    ways: dict[str, list[tuple[float, int]]] = {"kl_from_clean": [], "kl_to_clean": []}
    for part in micro_batches([row for row in rows if row.target_count], TOKENS_AT_ONCE):
        there, back = _token_kls(current, clean, Batch.collate(part, current.chat.pad_id, current.device))
        start = 0
        for row in part:
            end = start + row.target_count
            ways["kl_from_clean"].append((float(there[start:end].sum()), row.target_count))
            ways["kl_to_clean"].append((float(back[start:end].sum()), row.target_count))
            start = end
    return {name: Metric.of_ratio([s for s, _ in pairs], [n for _, n in pairs]) for name, pairs in ways.items()}


@torch.inference_mode()
def _token_kls(current: Student, clean: Student, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """KL(clean ‖ current) and KL(current ‖ clean) [targets], with one chunk of the vocabulary at a time.

    Of the rows that both heads have: what one of them has more are no words, but padding."""
    said = [(current.hidden(batch), current.head)]
    with turn_of(clean):
        said.append((clean.hidden(batch), clean.head))
    sizes = [len(head.weight) for _, head in said]
    there, back = [], []
    for part in chunks(len(batch.target_rows), max(sizes), CHUNK_ELEMENTS):
        log_p, log_q = (head.logits(states[part])[:, : min(sizes)].log_softmax(-1) for states, head in said)
        there.append(forward_kl(log_p, log_q).cpu())
        back.append(reverse_kl(log_p, log_q).cpu())
    return torch.cat(there), torch.cat(back)


def foretells(drifts: Sequence[float], forgotten: Sequence[float]) -> tuple[float, float]:
    """How well drift ranks what was forgotten, over several checkpoints: Spearman's correlation and its p-value."""
    from scipy.stats import permutation_test, spearmanr  # type: ignore[import-untyped]

    if len(drifts) < 4:
        raise RecoverError("to see whether drift foretells forgetting takes at least four checkpoints")
    found = float(spearmanr(drifts, forgotten).statistic)
    by_chance = permutation_test(
        (drifts,),
        lambda x: spearmanr(x, forgotten).statistic,
        permutation_type="pairings",
        n_resamples=2000,
        rng=np.random.default_rng(0),
    )
    return found, float(by_chance.pvalue)


def _states(kind: str, rollouts: list[Rollout], clean: Student) -> States:
    prefixes = [(i, r, written) for i, r in enumerate(rollouts) for written in r.prefixes(STATES_A_ROLLOUT)]
    owners = np.array([i for i, _, _ in prefixes])
    if kind == "lexical":
        return States(lexical([clean.chat.text(written) for _, _, written in prefixes]), owners)
    before = [len(r.tokens) - len(r.written) for _, r, _ in prefixes]
    begun = [r.tokens[: n + len(w)] for n, (_, r, w) in zip(before, prefixes, strict=True)]
    return States(hidden(clean, begun), owners)


def _distances(kind: str, before: States, after: States, seed: int) -> dict[str, Metric]:
    n, moved = len(before.features) + len(after.features), mmd(before, after, seed=seed)
    values = {
        f"mmd/{kind}": moved.value,
        f"mmd_p/{kind}": moved.p_value,
        f"centroid/{kind}": centroid_distance(before, after),
        f"sliced_wasserstein/{kind}": sliced_wasserstein(before, after, seed=seed),
    }
    return {name: Metric(value, n, UNKNOWN[0], UNKNOWN) for name, value in values.items()}


def written_row(rollout: Rollout) -> Sample:
    return _taught(rollout.tokens[: len(rollout.tokens) - len(rollout.written)], rollout.written)


def _taught(before: list[int], after: list[int]) -> Sample:
    return Sample(before + after, [False] * len(before) + [True] * len(after))
