"""Configs of real models' shapes, without weights and tokenizer."""

from pathlib import Path

from transformers import Qwen3Config

SHAPES = {
    "8b": {"hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 12_288},
    "0.6b": {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 3072},
}


def save_config(folder: Path, shape: str) -> str:
    """That of Qwen3 with so many parameters."""
    Qwen3Config(
        **SHAPES[shape], vocab_size=151_936, num_key_value_heads=8, head_dim=128, tie_word_embeddings=shape == "0.6b",
        architectures=["Qwen3ForCausalLM"],
    ).save_pretrained(folder)  # fmt: skip
    return str(folder)
