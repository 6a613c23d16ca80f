"""Saved models for programs that are built on transformers 4, as many servers, trainers and converters are.

transformers 5 writes some fields under new names. Where version 4 does not find one it takes a default, without a word:
a model whose rotary base is 100,000 then runs with 10,000.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def add_fields_of_transformers_4(folder: Path) -> None:
    """Write what transformers 4 reads beside what the installed version wrote, which reads both."""
    for name, change in (("config.json", _older_config), ("tokenizer_config.json", _older_tokenizer)):
        file = folder / name
        if file.is_file():
            written = json.loads(file.read_text(encoding="utf-8"))
            file.write_text(json.dumps(change(written), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _older_config(config: Mapping[str, Any]) -> dict[str, Any]:
    older = {name: _older_config(value) if name == "text_config" else value for name, value in config.items()}
    if "dtype" in config:
        older.setdefault("torch_dtype", config["dtype"])
    rope = config.get("rope_parameters") or {}
    of_windows = rope.get("sliding_attention")
    if isinstance(of_windows, Mapping):  # Gemma 3 has one for each kind of layer
        older.setdefault("rope_local_base_freq", of_windows.get("rope_theta"))
        rope = rope.get("full_attention") or {}
    for name in ("rope_theta", "partial_rotary_factor"):
        if name in rope:
            older.setdefault(name, rope[name])
    if rope.get("rope_type", "default") != "default":
        older.setdefault("rope_scaling", {name: value for name, value in rope.items() if name != "rope_theta"})
    return older


def _older_tokenizer(config: Mapping[str, Any]) -> dict[str, Any]:
    older = {name: value for name, value in config.items() if name not in ("is_local", "local_files_only")}
    if older.get("tokenizer_class") == "TokenizersBackend":
        older["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(older.get("extra_special_tokens"), list):
        older["additional_special_tokens"] = older.pop("extra_special_tokens")
    return older
