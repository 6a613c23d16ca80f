"""Checkpoints: how users refer to them, where their weights are now, and the hash that identifies weights.

A reference is `base`, `current`, `run:7`, `cycle:3` or `cycle:3/midtrained`; anything else is a folder
or a hub id."""

import hashlib
import json
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from db.queries import Reader
from db.tables import Checkpoint
from pipelines.project.locations import absolute_if_exists, relocate
from pipelines.storage import content_hash
from recovery.errors import RecoverError
from recovery.models.gguf_dequantisation import names_gguf

Stage = Literal["midtrained", "recovered"]
PATTERN = re.compile(r"(?P<name>base|current)|run:(?P<run>\d+)|cycle:(?P<cycle>\d+)(/(?P<stage>midtrained|recovered))?")
ADAPTER_CONFIG = "adapter_config.json"
BESIDE_WEIGHTS = (  # files that decide what a model replies
    *(ADAPTER_CONFIG, "config.json", "generation_config.json", "chat_template.jinja", "chat_template.json"),
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt"),
)


@dataclass(frozen=True)
class Reference:
    kind: Literal["base", "current", "run", "cycle"]
    number: int = 0  # of the run or cycle
    stage: Stage = "recovered"  # of the cycle


def parse_reference(text: str) -> Reference | None:
    """The parts of a project reference; None for a folder or a hub id."""
    match = PATTERN.fullmatch(text)
    if match is None:
        return None
    if match["name"]:
        return Reference("base" if text == "base" else "current")
    if match["run"]:
        return Reference("run", int(match["run"]))
    return Reference("cycle", int(match["cycle"]), "midtrained" if match["stage"] == "midtrained" else "recovered")


def model_path(reference: str) -> str:
    """The folder (absolute) or hub id of a model from outside the project."""
    path = absolute_if_exists(reference)
    if names_gguf(path):
        raise RecoverError(
            f"A GGUF file such as {reference} can only be the base (--base) of a project. Name a folder or a hub id."
        )
    if path.startswith((".", "/", "~")) and not Path(path).exists():
        raise RecoverError(f"There is no folder {reference}. Name a folder that exists, or a checkpoint or hub id.")
    if not Path(path).exists() and path.partition("@")[0].count("/") != 1:
        raise RecoverError(
            f"There is no checkpoint {reference!r}. Name base, current, cycle:N, cycle:N/midtrained, run:N, "
            "an existing folder, or a hub id like org/name."
        )
    return path


def locate_weights(checkpoint: Checkpoint, home: Path, reader: Reader) -> Checkpoint:
    """The checkpoint with the path where its weights are now; raises RecoverError if they are gone."""
    folder = relocate(home, Path(checkpoint.path))
    if folder.is_dir():
        return checkpoint.replaced(path=str(folder))
    cycles = reader.cycles(checkpoint.project_id)
    cycle = next((c for c in cycles if c.number == checkpoint.cycle), None)
    documents = cycle.documents if cycle and checkpoint.role == "midtrained" else None
    todo = f"Mid-train again with `recover cycle --docs {shlex.quote(documents)}`." if documents else "Train it again."
    if checkpoint.deleted_at:
        raise RecoverError(f"The weights of {checkpoint.reference} were deleted (`recover gc --rejected`). {todo}")
    raise RecoverError(f"The weights of {checkpoint.reference} are gone from {folder}. {todo}")


def weights_id(model: str, weights: str | None = None) -> str:
    """Identifies a model: the hash of its weights, which is `weights` if it is known, and one of the files beside them
    that decide its replies. A hub id stands for itself."""
    folder = Path(model)
    return f"{weights or weights_hash(folder)}/{_files_hash(folder)}" if folder.is_dir() else weights or model


def weights_hash(folder: Path) -> str:
    """SHA-256 over the safetensors files of a folder, in the order of their names."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as weights:
            while chunk := weights.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def _files_hash(folder: Path) -> str:
    """A short hash of the configs and of the tokenizer's files. Where an adapter's base lies is left out: a project may
    be moved."""
    contents = {name: (folder / name).read_bytes() for name in BESIDE_WEIGHTS if (folder / name).is_file()}
    if ADAPTER_CONFIG in contents:
        with suppress(ValueError):
            adapter = json.loads(contents[ADAPTER_CONFIG]) | {"base_model_name_or_path": None}
            contents[ADAPTER_CONFIG] = json.dumps(adapter, sort_keys=True).encode()
    return content_hash({name: hashlib.sha256(content).hexdigest() for name, content in contents.items()})[:16]
