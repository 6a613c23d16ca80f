"""A base given as a GGUF file: dequantised once, into the project's own folder."""

import hashlib
from pathlib import Path

from pipelines.log import log
from recovery.models.gguf import dequantise, tensor_types


def dequantised_base(file: Path, home: Path) -> str:
    """The model folder made from the file; it is made on first use."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    folder = home / "gguf" / f"{file.stem}-{digest[:12]}"
    if not folder.is_dir():
        types = tensor_types(file)
        total = sum(types.values())
        shares = ", ".join(f"{count / total:.1%} in {name}" for name, count in types.items())
        log.info(f"Dequantising {file.name} to bfloat16 ({shares})")
        folder.parent.mkdir(parents=True, exist_ok=True)
        dequantise(file, folder)
        log.info("Scores are those of these quantised weights; the original model's may be higher")
    return str(folder.resolve())
