"""Drift: how far the states that a model visits have moved from those of the clean model.

Both models answer the same prompts. The states are prefixes of their rollouts, compared by word features and by the
clean model's hidden states. Reported with them is the exact KL per token to the clean model, on the current model's
rollouts and on a new task; the latter is said to predict forgetting.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch

from evals.drift.distances import States, centroid_distance, mmd, sliced_wasserstein
from evals.results import Item, Metric, Result, item_key
from evals.subject import CostMeter
from evals.suites.knowledge import Question
from evals.suites.training_texts import WINDOW
from recovery.chunked_loss import CHUNK_ELEMENTS, chunks
from recovery.divergences import forward_kl, reverse_kl
from recovery.engines import Engine, Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.adapters import preserve_adapter_state
from recovery.models.chat_template import Chat
from recovery.models.students import Student
from recovery.samples import Batch, Sample, micro_batches

STATES_PER_ROLLOUT = 8
MAX_NEW_TOKENS = 128
TOKENS_PER_BATCH = 8192
BUCKETS = 96  # hash buckets for words
WORD = re.compile(r"\w+")
UNKNOWN = (float("nan"), float("nan"))

OpenEngine = Callable[[Student], AbstractContextManager[Engine]]


@dataclass(frozen=True)
class Rollout:
    prompt: str
    tokens: list[int]  # prompt and reply
    reply: list[int]

    @property
    def sample(self) -> Sample:
        """The reply's tokens as targets."""
        return _sample(self.tokens[: len(self.tokens) - len(self.reply)], self.reply)

    @property
    def state_ends(self) -> list[int]:
        """The lengths of the states, which are prefixes of the reply, spread evenly; a short reply has fewer."""
        ends = np.linspace(1, len(self.reply), min(STATES_PER_ROLLOUT, len(self.reply)))
        return [int(end) for end in ends]


class BaseUnderAdapter(Student):
    """The base model under another student's adapter: the same modules, used with the adapter disabled."""


@contextmanager
def adapter_disabled(student: Student) -> Iterator[None]:
    """Disable the adapter while a `BaseUnderAdapter` is in use. Does nothing for other students."""
    if not isinstance(student, BaseUnderAdapter):
        yield
        return
    with preserve_adapter_state(student.model), student.model.disable_adapter():
        yield


def measure_drift(
    current: Student,
    clean: Student,
    prompts: Sequence[str],
    *,
    data: str,
    open_engine: OpenEngine = lambda student: nullcontext(TransformersEngine(student)),
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
        after = _sample_rollouts(meter.wrap(engine), current, prompts, max_new_tokens, seed)
    # Another seed: with the same one, equal models would write the same, and differ less than independent samples do.
    with adapter_disabled(clean), open_engine(clean) as engine:
        before = _sample_rollouts(meter.wrap(engine), clean, prompts, max_new_tokens, seed + 1)
    lexical = [_states(side, lexical_features(clean, side)) for side in (before, after)]
    with adapter_disabled(clean):
        hidden = [_states(side, hidden_features(clean, side)) for side in (before, after)]
    metrics = _distances("lexical", seed, *lexical) | _distances("hidden", seed, *hidden)
    replies = [(clean.chat.text(a.reply), clean.chat.text(b.reply)) for a, b in zip(before, after, strict=True)]
    overlaps = [jaccard(a, b) for a, b in replies]
    metrics["jaccard"] = Metric.from_values(overlaps)
    samples = [rollout.sample for rollout in after]
    metrics |= token_kl(current, clean, samples)
    if new_task:
        metrics |= {f"{name}/new_task": metric for name, metric in token_kl(current, clean, new_task).items()}
    # Rollouts are read once for the hidden states; samples are read by both models for the KL.
    meter.read += sum(len(r.tokens) for r in (*before, *after))
    meter.read += 2 * sum(len(sample.tokens) for sample in (*samples, *new_task))
    items = [
        Item(item_key(prompt), prompt, b, a == b, {"clean": a, "jaccard": overlap})
        for prompt, (a, b), overlap in zip(prompts, replies, overlaps, strict=True)
    ]
    settings = {"max_new_tokens": max_new_tokens, "seed": seed, "states_a_rollout": STATES_PER_ROLLOUT}
    return Result("drift", "drift", data, metrics, items, settings, *meter.cost())


def question_samples(chat: Chat, questions: Sequence[Question]) -> list[Sample]:
    """Samples of the questions as chat prompts, with the reference answers as targets."""
    return [_sample(chat.prompt(q.text), chat.tokenizer.encode(q.answer, add_special_tokens=False)) for q in questions]


def passage_samples(chat: Chat, passages: Sequence[str]) -> list[Sample]:
    """Samples of passages as documents, with every token after the first as a target."""
    start = [] if chat.document_bos is None else [chat.document_bos]
    rows = [[*start, *chat.tokenizer.encode(text, add_special_tokens=False)][:WINDOW] for text in passages]
    return [_sample(ids[:1], ids[1:]) for ids in rows if len(ids) > 1]


def _sample(context: list[int], targets: list[int]) -> Sample:
    return Sample(context + targets, [False] * len(context) + [True] * len(targets))


def _sample_rollouts(
    engine: Engine, student: Student, prompts: Sequence[str], max_new_tokens: int, seed: int
) -> list[Rollout]:
    prompt_ids = [student.chat.prompt(prompt) for prompt in prompts]
    generations = engine.generate(prompt_ids, Sampling(max_new_tokens, seed=seed))
    rows = zip(prompts, prompt_ids, generations, strict=True)
    return [Rollout(prompt, ids + g.tokens, g.tokens) for prompt, ids, g in rows]


def _states(rollouts: Sequence[Rollout], features: np.ndarray) -> States:
    return States(features, np.array([i for i, rollout in enumerate(rollouts) for _ in rollout.state_ends]))


def _distances(kind: str, seed: int, before: States, after: States) -> dict[str, Metric]:
    n, discrepancy = len(before.features) + len(after.features), mmd(before, after, seed=seed)
    values = {
        f"mmd/{kind}": discrepancy.value,
        f"mmd_p/{kind}": discrepancy.p_value,
        f"centroid/{kind}": centroid_distance(before, after),
        f"sliced_wasserstein/{kind}": sliced_wasserstein(before, after, seed=seed),
    }
    return {name: Metric(value, n, UNKNOWN[0], UNKNOWN) for name, value in values.items()}


def jaccard(a: str, b: str) -> float:
    """Jaccard similarity of the two texts' word sets."""
    first, second = set(_words(a)), set(_words(b))
    return len(first & second) / len(first | second) if first | second else 1.0


def lexical_features(model: Student, rollouts: Sequence[Rollout]) -> np.ndarray:
    """Word counts by hash bucket and text statistics of each state [states, features]."""
    texts = [model.chat.text(rollout.reply[:end]) for rollout in rollouts for end in rollout.state_ends]
    return np.array([text_features(text) for text in texts], dtype=np.float32)


def text_features(text: str) -> list[float]:
    words = _words(text)
    buckets = np.bincount([zlib.crc32(word.encode()) % BUCKETS for word in words], minlength=BUCKETS)
    letters = max(len(text), 1)
    shape = [
        np.log1p(len(words)),
        len(set(words)) / max(len(words), 1),
        letters / max(len(words), 1),
        *(sum(map(kind, text)) / letters for kind in (str.isupper, str.isdigit, str.isspace)),
        *(np.log1p(text.count(sign)) for sign in "\n.,!?*#-\"'():"),
    ]
    return [*np.sqrt(buckets / max(len(words), 1)), *shape]


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())


@torch.inference_mode()
def hidden_features(model: Student, rollouts: Sequence[Rollout]) -> np.ndarray:
    """The last hidden state of `model` at the end of each state [states, width]; one pass reads all of a rollout."""
    features: list[np.ndarray] = []
    for rollout in rollouts:
        tokens = torch.tensor([rollout.tokens], device=model.device)
        hidden = model.causal.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state[0]
        start = len(rollout.tokens) - len(rollout.reply)
        features += [hidden[start + end - 1].float().cpu().numpy() for end in rollout.state_ends]
    return np.stack(features)


def token_kl(current: Student, clean: Student, samples: Sequence[Sample]) -> dict[str, Metric]:
    """Return the KL per target token in both directions, `kl_from_clean` and `kl_to_clean`.

    Each sample of the data is one statistical sample of the ratio."""
    sums: dict[str, list[tuple[float, int]]] = {"kl_from_clean": [], "kl_to_clean": []}
    for part in micro_batches([sample for sample in samples if sample.target_count], TOKENS_PER_BATCH):
        from_clean, to_clean = _batch_kls(current, clean, Batch.collate(part, current.chat.pad_id, current.device))
        start = 0
        for sample in part:
            end = start + sample.target_count
            sums["kl_from_clean"].append((float(from_clean[start:end].sum()), sample.target_count))
            sums["kl_to_clean"].append((float(to_clean[start:end].sum()), sample.target_count))
            start = end
    return {name: Metric.from_ratio([s for s, _ in pairs], [n for _, n in pairs]) for name, pairs in sums.items()}


@torch.inference_mode()
def _batch_kls(current: Student, clean: Student, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """KL(clean ‖ current) and KL(current ‖ clean) [targets], computed one chunk of targets at a time.

    Only vocabulary entries that both heads have are compared: what one of them has more is padding."""
    outputs = [(current.hidden(batch), current.head)]
    with adapter_disabled(clean):
        outputs.append((clean.hidden(batch), clean.head))
    sizes = [len(head.weight) for _, head in outputs]
    from_clean, to_clean = [], []
    for part in chunks(len(batch.target_rows), max(sizes), CHUNK_ELEMENTS):
        log_p, log_q = (head.logits(states[part])[:, : min(sizes)].log_softmax(-1) for states, head in outputs)
        from_clean.append(forward_kl(log_p, log_q).cpu())
        to_clean.append(reverse_kl(log_p, log_q).cpu())
    return torch.cat(from_clean), torch.cat(to_clean)
