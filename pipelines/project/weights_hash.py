"""Identify a model by its weights: measurements and caches are stored under this id."""

import hashlib
from pathlib import Path


def weights_id(model: str) -> str:
    """The hash of the weights of a local folder; a hub id stands for itself."""
    return weights_hash(Path(model)) if Path(model).is_dir() else model


def weights_hash(folder: Path) -> str:
    """SHA-256 over the safetensors files of a folder, in the order of their names."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as weights:
            while chunk := weights.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def chat_template_hash(folder: Path) -> str | None:
    """A short hash of the files that a folder's chat template may be in; None if it has none of them."""
    files = [folder / name for name in ("chat_template.jinja", "tokenizer_config.json") if (folder / name).is_file()]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16] if files else None
