"""Parameter counts and widths of a model, from its config.json alone."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from recovery.models.students import config_of, model_without_weights

FULL = 4  # bytes of a number in float32; bfloat16 has half of them


@dataclass(frozen=True)
class ModelShape:
    parameters: int
    layers: int
    hidden: int
    query: int  # numbers of all heads together
    key_value: int  # of the keys, and as many of the values
    inner: int  # of the feed-forward part; of all experts that a token uses
    vocabulary: int
    has_head_norms: bool  # queries and keys are normalised, as in Qwen3
    matrices: int  # weights of the layers that are multiplied, and so cast to bfloat16
    linear_sides: int  # inputs and outputs of all linear layers: the parameters of an adapter of rank 1
    outside: int  # parameters of no layer, without the output head: the embedding and the last norm

    @classmethod
    @cache
    def of(cls, reference: str) -> "ModelShape":
        """The shape of a folder or hub id; of an adapter, that of its base. No weights are read."""
        from transformers.pytorch_utils import Conv1D

        model = model_without_weights(reference)
        text = config_of(reference).get_text_config()
        head, in_layers = model.get_output_embeddings(), _in_layers(model)
        inner = {id(p) for p in in_layers}
        outside = [p for p in model.parameters() if id(p) not in inner and p is not head.weight]
        is_tied = head.weight is model.get_input_embeddings().weight
        linear = [m.weight for m in model.modules() if isinstance(m, torch.nn.Linear | Conv1D) and m is not head]
        width = getattr(text, "head_dim", None) or text.hidden_size // max(1, text.num_attention_heads)
        key_value_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        return cls(
            parameters=sum(p.numel() for p in model.parameters()),
            layers=text.num_hidden_layers,
            hidden=text.hidden_size,
            query=text.num_attention_heads * width,
            key_value=key_value_heads * width,
            inner=_inner_width(text),
            vocabulary=len(head.weight),
            has_head_norms=any(name.endswith("q_norm") for name, _ in model.named_modules()),
            matrices=sum(p.numel() for p in in_layers if p.dim() > 1),
            linear_sides=sum(sum(weight.shape) for weight in linear),
            outside=sum(p.numel() for p in outside) + is_tied * head.weight.numel(),
        )

    @property
    def head(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def layer(self) -> int:
        """Weights of one layer."""
        return self.matrices // max(1, self.layers)

    @property
    def cache_bytes(self) -> int:
        """Keys and values of one token, in a student's precision."""
        return 2 * self.layers * self.key_value * FULL

    def adapter(self, rank: int) -> int:
        """Parameters of an adapter on every linear layer but the output head."""
        return rank * self.linear_sides

    def activation_bytes(self, rank: int, *, bf16: bool) -> int:
        """What one layer keeps of one token for the backward pass.

        Counted from the operations of a layer with a gated feed-forward part, as in Llama and Qwen. Trained weights
        need what is multiplied with them; under an adapter only the adapter does. The residual stream and norms are
        in float32, the rest in bfloat16 under autocast, which casts the input of each linear layer separately."""
        heads, normed = self.query + self.key_value, self.has_head_norms
        if rank and bf16:
            kept = 18 * self.hidden + 6 * self.query + 4 * self.key_value + 8 * self.inner + 14 * rank
            return kept + 4 * heads * normed
        if rank:
            return 16 * self.hidden + (8 + 4 * normed) * heads + 16 * self.inner + 28 * rank
        if bf16:
            return 26 * self.hidden + (4 + 6 * normed) * heads + 8 * self.inner
        return 24 * self.hidden + (8 + 8 * normed) * heads + 16 * self.inner


def _in_layers(model: Any) -> list[Any]:
    kinds = set(getattr(model, "_no_split_modules", None) or ())
    layers = [module for module in model.modules() if type(module).__name__ in kinds]
    return list({id(p): p for layer in layers for p in layer.parameters()}.values())


def _inner_width(config: Any) -> int:
    if experts := getattr(config, "num_experts_per_tok", None):
        return int(experts * (getattr(config, "moe_intermediate_size", None) or config.intermediate_size))
    return int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size)
