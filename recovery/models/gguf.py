"""Models in the GGUF format: the quantised weights of one file, written as an ordinary model folder.

The folder's weights are the rounded ones: what quantisation lost does not come back."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from recovery.errors import RecoverError, first_line


def is_gguf(reference: str) -> bool:
    return reference.lower().endswith(".gguf") and Path(reference).is_file()


def tensor_types(file: Path) -> dict[str, int]:
    """Count the parameters stored in each type, such as Q4_1 or F32."""
    from gguf import GGUFReader

    try:
        tensors = GGUFReader(file).tensors
    except (OSError, ValueError, IndexError) as error:
        raise RecoverError(
            f"The file {file} is no readable GGUF file ({first_line(error)}). Download it again."
        ) from error
    counts: Counter[str] = Counter()
    for tensor in tensors:
        counts[tensor.tensor_type.name] += int(tensor.n_elements)
    return dict(counts.most_common())


def dequantise(file: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file to a folder, in bfloat16 safetensors.

    The folder is complete or absent: it is written under another name and renamed."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    model, tokenizer = _load(file)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.rename(folder)


def _load(file: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    source: dict[str, Any] = {"gguf_file": file.name, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **source)
        loaded = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **source)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise RecoverError(
            f"No model could be loaded from {file} ({first_line(error)}). transformers reads GGUF files of common "
            "architectures only; use the original model instead."
        ) from error
    config = loaded.config
    if hasattr(config, "quantization_config"):  # the weights are dequantised; saved with it, they could not be loaded
        del config.quantization_config
    config.dtype = torch.bfloat16
    model = type(loaded)(config)
    model.load_state_dict(loaded.state_dict())
    model.tie_weights()
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model.generation_config = GenerationConfig(**ids)
    return model.to(torch.bfloat16), tokenizer
