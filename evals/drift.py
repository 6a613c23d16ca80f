"""Drift: how far a model is from the clean one, and how diverse its replies still are.

The KL per token is exact over the vocabulary, on the model's own replies and on a new task; the latter is said to
predict forgetting. Greedy scores do not show how narrow a model's distribution has become.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial

import torch

from evals.results import Item, Metric, Result, item_key
from evals.subject import Answer, MeteredEngine, Subject, with_cost_meter
from evals.suites.instruction_following import Prompt, judge
from evals.suites.knowledge import Question, matches_reference
from evals.suites.training_texts import WINDOW
from recovery.chunked_loss import CHUNK_ELEMENTS, chunks
from recovery.divergences import forward_kl, reverse_kl
from recovery.engines import Engine, Generation, Sampling
from recovery.models.chat_template import Chat
from recovery.models.students import Student
from recovery.samples import Batch, Sample, micro_batches
from recovery.teachers import AdapterOffTeacher, FrozenTeacher

DRIFT_TOKENS, DIVERSITY_TOKENS = 128, 320  # of a reply, at most
SAMPLES = 8
TOKENS_PER_BATCH = 8192

Clean = FrozenTeacher | AdapterOffTeacher  # not bound to the model: it may have another chat template


def measure_drift(
    current: Student,
    clean: Clean,
    engine: Engine,
    prompts: Sequence[str],
    *,
    data: str,
    new_task: Sequence[Sample] = (),
    max_new_tokens: int = DRIFT_TOKENS,
    seed: int = 0,
) -> Result:
    """Measure the KL per token on what `current` writes with its `engine`, and on `new_task`."""
    prompts, metered = list(dict.fromkeys(prompts)), MeteredEngine(engine)
    prompt_ids = [current.chat.prompt(prompt) for prompt in prompts]
    generations = metered.generate(prompt_ids, Sampling(max_new_tokens, seed=seed))
    samples = [Sample.behind(ids, reply.tokens) for ids, reply in zip(prompt_ids, generations, strict=True)]
    metrics = token_kl(current, clean, samples)
    if new_task:
        metrics |= {f"{name}/new_task": metric for name, metric in token_kl(current, clean, new_task).items()}
    metered.read += 2 * sum(len(sample.tokens) for sample in (*samples, *new_task))  # by both models
    items = [
        Item(item_key(prompt), prompt, current.chat.text(reply.tokens), reply.finished)
        for prompt, reply in zip(prompts, generations, strict=True)
    ]
    settings = {"max_new_tokens": max_new_tokens, "seed": seed}
    return Result("drift", "drift", data, metrics, items, settings, *metered.cost())


def question_samples(chat: Chat, questions: Sequence[Question]) -> list[Sample]:
    """Samples of the questions as chat prompts, with the reference answers as targets."""
    return [
        Sample.behind(chat.prompt(q.text), chat.tokenizer.encode(q.answer, add_special_tokens=False)) for q in questions
    ]


def passage_samples(chat: Chat, passages: Sequence[str]) -> list[Sample]:
    """Samples of passages as documents, with every token after the first as a target."""
    start = [] if chat.document_bos is None else [chat.document_bos]
    encode = partial(chat.tokenizer.encode, add_special_tokens=False, split_special_tokens=True)
    rows = [[*start, *encode(text)][:WINDOW] for text in passages]
    return [Sample.behind(ids[:1], ids[1:]) for ids in rows if len(ids) > 1]


def token_kl(current: Student, clean: Clean, samples: Sequence[Sample]) -> dict[str, Metric]:
    """Return the KL per target token in both directions, `kl_from_clean` and `kl_to_clean`.

    Each sample of the data is one statistical sample of the ratio."""
    sums: dict[str, list[tuple[float, int]]] = {"kl_from_clean": [], "kl_to_clean": []}
    for part in micro_batches([sample for sample in samples if sample.target_count], TOKENS_PER_BATCH):
        from_clean, to_clean = _batch_kls(current, clean, Batch.collate(part, current.chat.pad_id, current.device))
        counts = [sample.target_count for sample in part]
        for name, kls in (("kl_from_clean", from_clean), ("kl_to_clean", to_clean)):
            sums[name] += ((float(of_row.sum()), len(of_row)) for of_row in kls.split(counts))
    return {name: Metric.from_ratio([s for s, _ in pairs], [n for _, n in pairs]) for name, pairs in sums.items()}


@torch.inference_mode()
def _batch_kls(current: Student, clean: Clean, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """KL(clean ‖ current) and KL(current ‖ clean) [targets], computed one chunk of targets at a time.

    Only vocabulary entries that both heads have are compared: what one of them has more is padding."""
    taught = clean.distribution(batch)
    outputs = [(current.hidden(batch), current.head), (taught.hidden, taught.head)]
    sizes = [len(head.weight) for _, head in outputs]
    from_clean, to_clean = [], []
    for part in chunks(len(batch.target_rows), max(sizes), CHUNK_ELEMENTS):
        log_p, log_q = (head.logits(states[part])[:, : min(sizes)].log_softmax(-1) for states, head in outputs)
        from_clean.append(forward_kl(log_p, log_q).cpu())
        to_clean.append(reverse_kl(log_p, log_q).cpu())
    return torch.cat(from_clean), torch.cat(to_clean)


def measure_diversity(
    subject: Subject, prompts: Sequence[Prompt | Question], *, data: str, samples: int = SAMPLES
) -> Result:
    """Measure the diversity of replies to instructions or questions, sampled at temperature 1, the model's own
    distribution. A reply passes if it follows all instructions, or matches the answer."""
    subject, cost = with_cost_meter(subject)
    prompts = list({prompt.text: prompt for prompt in prompts}.values())
    ids = [tokens for prompt in prompts for tokens in [subject.chat.prompt(prompt.text)] * samples]
    generations = subject.engine.generate(ids, Sampling(DIVERSITY_TOKENS, temperature=1.0, of_turns=True))
    groups = [generations[i * samples : (i + 1) * samples] for i in range(len(prompts))]
    items = [_item(subject, *row) for row in zip(prompts, ids[::samples], groups, strict=True)]
    metrics = {
        f"pass@{samples}": Metric.from_values([float(item.passed) for item in items]),
        "pass@1": Metric.from_values([sum(item.verdicts["passed"]) / samples for item in items]),
        "distinct": Metric.from_values([item.verdicts["distinct"] for item in items]),
        "answer_entropy": Metric.from_values([item.verdicts["answer_entropy"] for item in items]),
        # The mean negative log-likelihood of sampled tokens estimates the entropy of their distribution.
        "token_entropy": Metric.from_ratio(
            [-sum(map(sum, (g.logprobs for g in group))) for group in groups],
            [sum(len(g.logprobs) for g in group) for group in groups],
        ),
    }
    settings = {"samples": samples, "max_new_tokens": DIVERSITY_TOKENS, "seed": 0}
    return Result("diversity", "drift", data, metrics, items, settings, *cost())


def _item(subject: Subject, prompt: Prompt | Question, tokens: list[int], group: list[Generation]) -> Item:
    replies = [Answer(subject.reply_text(tokens, g.tokens), g.finished) for g in group]
    passed = [_passes(prompt, reply) for reply in replies]
    counts = Counter(reply.text for reply in replies)
    shares = [count / len(replies) for count in counts.values()]
    verdicts = {
        "passed": passed,
        "distinct": len(counts) / len(replies),
        "answer_entropy": -math.fsum(share * math.log(share) for share in shares),
    }
    return Item(item_key(prompt.text), prompt.text, replies[0].text, any(passed), verdicts)


def _passes(prompt: Prompt | Question, reply: Answer) -> bool:
    return matches_reference(reply.text, prompt) if isinstance(prompt, Question) else judge(prompt, reply).passed
