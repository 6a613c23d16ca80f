"""The tensors in the files of a model, which are read without loading it."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from recovery.errors import RecoverError
from recovery.models.adapters import name_and_revision, same_model

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
HEAD, EMBEDDINGS = "lm_head.weight", ("embed_tokens.weight", "wte.weight")
BUFFER = "inv_freq"
NOT_STORED = (HEAD, BUFFER)  # ends of names that files may have or not


def same_weights(first: str, second: str) -> bool:
    """Whether two references name one model, or two with equal weights, such as a hub id and a copy in a folder.

    One of them may lack a head that is its embedding."""
    if same_model(first, second):
        return True
    ours, theirs = tensor_files(first), tensor_files(second)
    names = {name for name in ours.keys() | theirs.keys() if not name.endswith(BUFFER)}
    pairs = [(_stored(name, ours), _stored(name, theirs)) for name in sorted(names)]
    first_of, second_of = tensor_reader(ours), tensor_reader(theirs)
    return all(a and b for a, b in pairs) and all(
        torch.equal(first_of(a).float(), second_of(b).float()) for a, b in pairs if a and b
    )


def _stored(name: str, files: Mapping[str, Path]) -> str | None:
    """The name under which a weight is stored: a head may be the embedding."""
    if name in files or not name.endswith(HEAD):
        return name if name in files else None
    return next((other for other in files if other.endswith(EMBEDDINGS)), None)


def tensor_files(reference: str) -> dict[str, Path]:
    """The file of every tensor, by its name; raise RecoverError if a file is missing."""
    single = _file(reference, SINGLE)  # which is what is loaded, whatever an older index beside it names
    index = _file(reference, INDEX) if single is None else None
    if index is not None:
        names = shards_of(index)
        files = {name: _file(reference, name) for name in sorted(set(names.values()))}
        missing = [name for name, file in files.items() if file is None]
        if missing:
            raise RecoverError(
                f"The weights of {reference} are incomplete: {len(missing)} of {len(files)} files that its index names "
                f"are missing, such as {missing[0]}. Copy or download them again."
            )
        return {name: file for name, shard in names.items() if (file := files[shard]) is not None}
    if single is None:
        raise RecoverError(
            f"There is no {SINGLE} in {reference}. Pickled weights are not loaded because they can run code: save the "
            "model with transformers' save_pretrained."
        )
    return dict.fromkeys(tensor_names(single), single)


def shards_of(index: Path) -> dict[str, str]:
    """The name of the file of every tensor."""
    try:
        shards: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
        if set(map(type, shards.values())) == {str}:
            return shards
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise RecoverError(
        f"The file {index} does not say which file holds which weights (its weight_map is missing or broken). Copy or "
        "download it again, or save the model again with transformers' save_pretrained."
    )


def _file(reference: str, name: str) -> Path | None:
    from transformers.utils.hub import cached_file

    repository, revision = name_and_revision(reference)
    found = cached_file(repository, name, revision=revision, _raise_exceptions_for_missing_entries=False)
    return Path(found) if found else None


def tensor_names(file: Path) -> list[str]:
    try:
        with safe_open(file, "pt") as weights:
            return list(weights.keys())
    except (SafetensorError, OSError) as error:
        raise RecoverError(f"The file {file} cannot be read ({error}). Copy or download it again.") from error


def tensor_reader(files: dict[str, Path]) -> Callable[[str], Tensor]:
    """The tensors by their names; every file is opened once."""
    opened = _opener()
    return lambda name: opened(files[name]).get_tensor(name)


def shape_reader(files: dict[str, Path]) -> Callable[[str], list[int]]:
    """Their shapes, by their names."""
    opened = _opener()
    return lambda name: opened(files[name]).get_slice(name).get_shape()


def _opener() -> Callable[[Path], Any]:
    return cache(lambda file: safe_open(file, "pt").__enter__())
