"""Families of models differ in what they do to their logits and in what they remember of a text."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.students import Student
from recovery.vocabulary import Head
from tests.models import tiny_student

SIZES = {
    "vocab_size": 259,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.2,
}


def tiny(family: str, **options: Any) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SIZES | options)).eval()


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("qwen3", {}),
        ("cohere", {"logit_scale": 0.25}),
        ("granite", {"logits_scaling": 4.0}),
        ("hyperclovax", {"logits_scaling": 0.25}),
        ("gemma2", {"final_logit_softcapping": 0.5}),
    ],
)
def test_logits_are_the_models_own(family: str, options: dict[str, float]) -> None:
    model = tiny(family, **options)
    tokens = torch.randint(3, 64, (2, 5))
    with torch.no_grad():
        hidden = model.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
        torch.testing.assert_close(Head.of(model).logits(hidden), model(tokens).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
        ("bloom", {"n_layer": 2, "n_head": 4}),  # positions through the mask
        ("gemma2", {"sliding_window": 16}),
        ("lfm2", {"layer_types": ["conv", "full_attention"]}),  # remembers states besides keys and values
        ("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}),
    ],
)
def test_rollouts_report_what_a_plain_forward_pass_says(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    model, chat = tiny(family, **options), tiny_student(tmp_path).chat
    engine = TransformersEngine(Student(model, chat, family))
    prompts = [chat.prompt(text) for text in ("hi", "a much longer question than that", "ok?", "hi")]
    for prompt, g in zip(prompts, engine.generate(prompts, Sampling(40, seed=3)), strict=True):
        tokens = torch.tensor([prompt + g.tokens])
        with torch.no_grad():
            log_p = torch.log_softmax(model(tokens).logits[0, :-1].float(), -1)
        alone = log_p.gather(-1, tokens[0, 1:, None]).squeeze(-1)
        torch.testing.assert_close(torch.tensor(g.logprobs), alone[len(prompt) - 1 :], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(torch.tensor(engine.logprobs([tokens[0].tolist()])[0]), alone, atol=1e-4, rtol=1e-4)


LATENT = {  # keys and values of another width than its heads
    "num_key_value_heads": 4,
    "head_dim": 4,
    "kv_lora_rank": 8,
    "q_lora_rank": None,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 2,
}


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("qwen3", {}),
        ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
        ("gemma2", {"sliding_window": 16}),
        ("lfm2", {"layer_types": ["conv", "full_attention"]}),
        ("deepseek_v3", LATENT),
    ],
)
def test_what_keys_and_values_take_is_seen_from_one_token(family: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = tiny(family, **options)
    engine = TransformersEngine(Student(model, tiny_student(tmp_path).chat, family))
    with torch.no_grad():
        cache = model(torch.ones(3, 10, dtype=torch.long), use_cache=True).past_key_values
    kept = [getattr(layer, kind, None) for layer in cache.layers for kind in ("keys", "values")]
    assert engine._bytes_a_token() * 3 * 10 == sum(states.nbytes for states in kept if states is not None) > 0
