"""The head says what the model itself would say, whatever the family does to its logits afterwards."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from recovery.vocabulary import Head

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


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
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SIZES, **options)).eval()
    tokens = torch.randint(3, 64, (2, 5))
    with torch.no_grad():
        hidden = model.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
        torch.testing.assert_close(Head.of(model).logits(hidden), model(tokens).logits, rtol=1e-4, atol=1e-5)
