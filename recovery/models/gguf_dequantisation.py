"""Models in the GGUF format: the quantised weights of one file, written as an ordinary model folder.

The folder's weights are the rounded ones: what quantisation lost does not come back."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from recovery.errors import RecoverError, first_line
from recovery.files import stored


def names_gguf(reference: str) -> bool:
    """Whether a model's reference is that of a GGUF file, which need not exist."""
    return reference.lower().endswith(".gguf") and not Path(reference).is_dir()


def tensor_types(file: Path) -> dict[str, int]:
    from gguf import GGUFReader

    counts: Counter[str] = Counter()
    try:
        for tensor in GGUFReader(file).tensors:
            counts[tensor.tensor_type.name] += int(tensor.n_elements)
    except Exception as error:  # of a damaged file: whatever its bytes lead the reader into
        raise RecoverError(
            f"The file {file} is no complete GGUF file ({_problem(error)}). Download it again, or name another model."
        ) from error
    return dict(counts.most_common())


def dequantise(file: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file to a folder, in bfloat16 safetensors.

    The folder is complete or absent: it is written under another name and renamed."""
    model, tokenizer = _load(file)
    with tempfile.TemporaryDirectory(dir=folder.parent, suffix=".partial") as partial:
        written = Path(partial) / "model"
        with stored(written, folder, "Free space there, and repeat the command."):
            model.save_pretrained(written)
            tokenizer.save_pretrained(written)
        if not folder.is_dir():  # another process may have been faster
            written.rename(folder)


def _load(file: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    source: dict[str, Any] = {"gguf_file": file.name, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, mistral_format=False, **source)
        loaded = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **source)
    except Exception as error:  # each architecture's reader raises errors of its own
        raise RecoverError(
            f"No model could be loaded from {file} ({_problem(error)}). transformers reads GGUF files of common "
            "architectures only; name the original model instead."
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


def _problem(error: Exception) -> str:
    return first_line(error).rstrip(" .:")
