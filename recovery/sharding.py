"""Models whose weights are shared out over the processes of a training (FSDP2), each process holding one part.

A layer's weights are gathered for the time it computes. So every process must run the same number of forward passes.
Code that generates, measures or saves cannot promise that: outside of a step the student is whole, and plain.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from recovery.distributed import as_parts, size
from recovery.models.students import Student


class ShardedStudent:
    """A student with two models over the same weights: the whole one, and during a step the sharded one.

    The memory of the whole one is free during a step."""

    def __init__(self, student: Student):
        self.student, self.whole = student, student.model
        self._send_trained_weights()
        tensors = {id(t): t for t in (*student.model.parameters(), *student.model.buffers())}
        self.sharded = copy.deepcopy(student.model, tensors)  # other modules, the same tensors
        student.model = self.sharded
        shard(student.causal)
        student.model = self.whole
        parts = dict(self.sharded.named_parameters())
        self._pairs = [(parameter, parts[name]) for name, parameter in self.whole.named_parameters()]
        self._gather()

    @contextmanager
    def step(self) -> Iterator[None]:
        """The student's model is the sharded one inside; after an error it stays so, since nothing can follow."""
        for parameter, _ in self._pairs:
            parameter.data = parameter.data.new_empty(0)
        self.student.model = self.sharded
        yield
        self.student.model = self.whole
        self._gather()

    @torch.no_grad()
    def take_over(self) -> None:
        """Give all processes the trained weights of the leader's whole student, after it was loaded or moved."""
        self._send_trained_weights()
        for parameter, part in self._pairs:
            if parameter.requires_grad:
                part.to_local().copy_(as_parts(parameter.data, part).to_local())

    @torch.no_grad()
    def _gather(self) -> None:
        for parameter, part in self._pairs:
            parameter.data = part.detach().full_tensor()

    @torch.no_grad()
    def _send_trained_weights(self) -> None:
        for parameter in self.whole.parameters():
            if parameter.requires_grad:
                dist.broadcast(parameter.data, src=0)


def shard(causal: Any) -> None:
    """Share out a model's weights in place, layer by layer; what lies outside of the decoder is gathered when read."""
    decoder = causal.get_decoder()
    mesh = init_device_mesh(next(causal.parameters()).device.type, (size(),))
    head, embedding = causal.get_output_embeddings(), causal.get_input_embeddings()
    is_tied = head.weight is embedding.weight
    layers = set(getattr(causal, "_no_split_modules", None) or ())
    for module in decoder.modules():
        if module is not decoder and type(module).__name__ in layers:
            fully_shard(module, mesh=mesh)
    # A student's backward pass follows its forward pass, and would gather again what lies outside of the layers.
    is_frozen = not any(p.requires_grad for p in causal.parameters())
    fully_shard(decoder, mesh=mesh, reshard_after_forward=is_frozen or None)
    for module in decoder.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # a step's loss is divided by the target tokens of all processes
            module.set_force_sum_reduction_for_comms(True)
            if hasattr(module, "set_reduce_scatter_unused_params"):  # torch 2.13
                module.set_reduce_scatter_unused_params(True)  # experts that only some processes used
    if is_tied:
        head.weight = embedding.weight
    for module in causal.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if not isinstance(parameter, DTensor):
                part = distribute_tensor(parameter.data, mesh, [Shard(0)], src_data_rank=None)
                setattr(module, name, nn.Parameter(part, requires_grad=parameter.requires_grad))
