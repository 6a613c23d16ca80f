"""The cost of a step: floating-point operations (2 × parameters per token and pass) and peak memory."""

import resource
import sys

import torch

from recovery.models.students import Student
from recovery.samples import Sample
from recovery.signals import Signal


def flops_of_step(student: Student, signal: Signal, samples: list[Sample], *, rolled_out: bool) -> float:
    """Count forward and backward of the student (3 passes), the teacher's forward, and the rollouts' forward.

    Rollouts that are not learned cost their forward pass alone."""
    trained = [sample for sample in samples if sample.target_count]
    tokens = 3 * sum(len(sample.tokens) for sample in trained)
    if rolled_out:
        sampled = [sample for sample in samples if sample.logprobs is not None and sample.privileged is not False]
        tokens += sum(len(sample.tokens) for sample in sampled)
    written = sum(sample.writing_flops for sample in samples) if rolled_out else 0.0
    return 2.0 * tokens * student.parameters + signal.flops(trained) + written


def peak_memory_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
