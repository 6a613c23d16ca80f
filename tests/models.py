"""Tiny models with random weights and real tokenizers, built in milliseconds."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from recovery.models.students import Student, load_student

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BOS = 259


def bytewise(special: list[str], more: list[str] | None = None) -> Tokenizer:
    """One token per byte, between the special tokens and `more`."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*special, *letters, *(more or [])])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def tiny_tokenizer(
    *, pad: str = "<|endoftext|>", template: str | None = CHATML, adds_bos: bool = False
) -> PreTrainedTokenizerFast:
    """A tokenizer with one token per byte; with `adds_bos` it puts a BOS before every text, as Llama's does."""
    fast = bytewise(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<bos>"] if adds_bos else [])
    bos = {"bos_token": "<bos>"} if adds_bos else {}
    if adds_bos:
        fast.post_processor = processors.TemplateProcessing("<bos> $A", special_tokens=[("<bos>", BOS)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=fast,
        eos_token="<|im_end|>",
        pad_token=pad,
        additional_special_tokens=["<|im_start|>"],
        **bos,
    )
    tokenizer.chat_template = template
    return tokenizer


def tiny_model(vocabulary: int, *, seed: int = 0, head_dim: int = 16, tied: bool = True) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=head_dim,
        intermediate_size=64,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        initializer_range=0.2,  # large, so that the distributions are far from uniform
    )
    return Qwen3ForCausalLM(config)


def save_tiny(
    folder: Path,
    *,
    seed: int = 0,
    pad: str = "<|endoftext|>",
    eos: list[int] | None = None,
    template: str | None = CHATML,
    head_dim: int = 16,
    tied: bool = True,
    adds_bos: bool = False,
    padding: int = 0,  # rows of the embedding without a token
) -> Path:
    model = tiny_model(259 + adds_bos + padding, seed=seed, head_dim=head_dim, tied=tied)
    model.generation_config.eos_token_id = eos or [2]
    model.save_pretrained(folder)
    tiny_tokenizer(pad=pad, template=template, adds_bos=adds_bos).save_pretrained(folder)
    return folder


def change_json(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def tiny_student(folder: Path, **options: object) -> Student:
    return load_student(str(save_tiny(folder, **options)))  # type: ignore[arg-type]
