"""Tiny GGUF files: a Llama with random weights and a tokenizer of single bytes and one pair."""

from pathlib import Path

import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import quantize
from tokenizers import pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from tests.models import CHATML

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.layers": "blk",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tiny_llama(seed: int = 0) -> LlamaForCausalLM:
    """Weights are those that bfloat16 can hold, so that only the quantisation rounds them."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=260,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=64,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.2,
        rms_norm_eps=1e-5,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16).float()


def save_tiny_gguf(file: Path, *, seed: int = 0, architecture: str = "llama", template: str | None = CHATML) -> Path:
    """Write the tiny Llama with its value projections in Q8_0 and all else in F32; EOS and padding are one token."""
    model = tiny_llama(seed)
    writer = GGUFWriter(file, architecture)
    _write_config(writer, model.config)
    _write_tokenizer(writer, template)
    for name, weights in model.state_dict().items():
        if name == "lm_head.weight":  # tied
            continue
        if "q_proj" in name or "k_proj" in name:
            weights = _interleaved(weights, model.config.head_dim)
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        if "attn_v" in name:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(name, quantize(weights.numpy(), kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, weights.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _write_config(writer: GGUFWriter, config: LlamaConfig) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer: GGUFWriter, template: str | None) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*SPECIAL, *letters, "th"])
    writer.add_token_types([TokenType.CONTROL] * len(SPECIAL) + [TokenType.NORMAL] * (len(letters) + 1))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    if template:
        writer.add_chat_template(template)


def _interleaved(weights: Tensor, head_dim: int) -> Tensor:
    """GGUF stores the two halves of each head's rotary dimensions in turn."""
    heads = weights.reshape(-1, 2, head_dim // 2, weights.shape[1])
    return heads.transpose(1, 2).reshape(weights.shape).contiguous()
