import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from recovery.lab import BASE


def test_the_base_loads_in_transformers_and_answers() -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(BASE), AutoTokenizer.from_pretrained(BASE)
    assert model.config.model_type == "qwen3"
    assert model.config.max_position_embeddings >= 4096
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.eos_token != tokenizer.pad_token
    assert tokenizer.eos_token_id in model.generation_config.eos_token_id
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello!"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        reply = model.generate(**prompt, do_sample=False, max_new_tokens=40)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.eos_token_id in reply


def test_the_base_is_small_and_names_its_suites() -> None:
    assert sum(file.stat().st_size for file in BASE.iterdir()) <= 16 * 2**20
    assert not [file for file in BASE.iterdir() if file.suffix in (".bin", ".pt", ".pkl", ".tmp")]
    metadata = json.loads((BASE / "recover.json").read_text())
    assert metadata["suites"] == {"behaviour": "lab", "retention": "lab"}
