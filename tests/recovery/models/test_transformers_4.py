import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    Gemma3TextConfig,
    GlmConfig,
    GPTNeoXConfig,
    LlamaConfig,
    Phi3Config,
    PreTrainedConfig,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from recovery.models.students import load_chat
from recovery.models.transformers_4 import add_fields_of_transformers_4
from tests.chat_families import FAMILIES

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 48, "long_factor": [2.0] * 48,
    "original_max_position_embeddings": 4096,
}  # fmt: skip


def as_read(folder: Path) -> Any:
    """How the installed version reads the rotary embeddings; `type` is an older name beside `rope_type`."""
    config = AutoConfig.from_pretrained(folder).get_text_config()
    rope = getattr(config, "rope_parameters", None)
    return {name: value for name, value in rope.items() if name != "type"} if rope else rope


def test_the_installed_version_reads_every_kind_of_model_as_before(tmp_path: Path) -> None:
    with_rope = 0
    for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        try:
            config = CONFIG_MAPPING[name]()
        except StrictDataclassError:  # of music: it consists of others
            continue
        config.save_pretrained(tmp_path / name)
        before = as_read(tmp_path / name)
        add_fields_of_transformers_4(tmp_path / name)
        assert as_read(tmp_path / name) == before, name
        with_rope += bool(before)
    assert with_rope > 80


@pytest.mark.parametrize(
    ("config", "older"),
    [
        (LlamaConfig(rope_parameters={"rope_type": "default", "rope_theta": 1e5}, dtype="bfloat16"),
         {"rope_theta": 1e5, "torch_dtype": "bfloat16"}),
        (LlamaConfig(rope_parameters=LLAMA3),
         {"rope_theta": 5e5, "rope_scaling": {k: v for k, v in LLAMA3.items() if k != "rope_theta"}}),
        (GlmConfig(), {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
        (Gemma3TextConfig(), {"rope_theta": 1e6, "rope_local_base_freq": 10000.0}),
        (GPTNeoXConfig(rotary_pct=1.0, rotary_emb_base=50000), {"rotary_pct": 1.0, "rotary_emb_base": 50000}),
        (Phi3Config(rope_parameters=LONGROPE),
         {"rope_theta": 1e4, "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48,
                                              "long_factor": [2.0] * 48}}),
    ],
    ids=["theta", "llama3", "glm", "gemma3", "neox", "phi3"],
)  # fmt: skip
def test_a_config_has_the_old_names_beside_the_new_ones(
    config: PreTrainedConfig, older: dict[str, Any], tmp_path: Path
) -> None:
    config.save_pretrained(tmp_path)
    before = json.loads((tmp_path / "config.json").read_text())
    assert not older.keys() <= before.keys(), "the installed version writes them itself"
    read, dtype = as_read(tmp_path), AutoConfig.from_pretrained(tmp_path).dtype
    add_fields_of_transformers_4(tmp_path)
    after = json.loads((tmp_path / "config.json").read_text())
    assert {name: after[name] for name in older} == older
    assert after.keys() - before.keys() <= {*older, "torch_dtype", "partial_rotary_factor"}
    assert as_read(tmp_path) == read
    assert AutoConfig.from_pretrained(tmp_path).dtype == dtype


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_special_tokens_stay_special(family: Any, tmp_path: Path) -> None:
    before = load_chat(str(family.save(tmp_path)))
    add_fields_of_transformers_4(tmp_path)
    after = load_chat(str(tmp_path))
    assert after.tokenizer.all_special_ids == before.tokenizer.all_special_ids
    assert (after.eos_ids, after.turn_ends, after.separator) == (before.eos_ids, before.turn_ends, before.separator)
    assert after.prompt("A <|im_end|> B") == before.prompt("A <|im_end|> B")
