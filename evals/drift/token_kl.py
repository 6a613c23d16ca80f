"""Exact per-token KL divergence between two models."""

from collections.abc import Sequence

import torch

from evals.drift.rollouts import adapter_disabled
from evals.results import Metric
from recovery.chunked_loss import CHUNK_ELEMENTS, chunks
from recovery.divergences import forward_kl, reverse_kl
from recovery.models.students import Student
from recovery.samples import Batch, Sample, micro_batches

TOKENS_PER_BATCH = 8192


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
