"""Saved models for programs that are built on transformers 4, as many servers, trainers and converters are.

transformers 5 writes some fields under new names. Where version 4 does not find one it takes a default, without a word:
a model whose rotary base is 100,000 then runs with 10,000.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OTHER_NAMES = {"gpt_neox": ("rotary_emb_base", "rotary_pct")}  # of the base, and of the share of the width that turns


def add_fields_of_transformers_4(folder: Path) -> None:
    """Write what transformers 4 reads beside what the installed version wrote, which reads both."""
    for name, change in (("config.json", _older_config), ("tokenizer_config.json", _older_tokenizer)):
        file = folder / name
        if file.is_file():
            written = json.loads(file.read_text(encoding="utf-8"))
            file.write_text(json.dumps(change(written), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _older_config(config: Mapping[str, Any]) -> dict[str, Any]:
    older = dict(config)
    if isinstance(text := config.get("text_config"), Mapping):
        older["text_config"] = _older_config(text)
    if "dtype" in config:
        older.setdefault("torch_dtype", config["dtype"])
    rope, kind = config.get("rope_parameters") or {}, config.get("model_type")
    if kind in ("gemma3_text", "gemma3n_text", "olmo3") and "full_attention" in rope:  # one for each kind of layer
        if kind != "olmo3":
            older.setdefault("rope_local_base_freq", rope["sliding_attention"].get("rope_theta"))
        rope = rope["full_attention"]
    theta, share = OTHER_NAMES.get(str(kind), ("rope_theta", "partial_rotary_factor"))
    for name, value in ((theta, rope.get("rope_theta")), (share, rope.get("partial_rotary_factor"))):
        if value is not None:
            older.setdefault(name, value)
    if rope.get("rope_type", "default") != "default":
        scaling = {name: value for name, value in rope.items() if name not in ("rope_theta", "partial_rotary_factor")}
        if kind == "phi3":  # it refuses any other field
            scaling = {"type": scaling["rope_type"]} | {name: scaling[name] for name in ("short_factor", "long_factor")}
        older.setdefault("rope_scaling", scaling)
    return older


def _older_tokenizer(config: Mapping[str, Any]) -> dict[str, Any]:
    older = {name: value for name, value in config.items() if name not in ("is_local", "local_files_only")}
    if older.get("tokenizer_class") == "TokenizersBackend":
        older["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(older.get("extra_special_tokens"), list):
        older["additional_special_tokens"] = older.pop("extra_special_tokens")
    return older
