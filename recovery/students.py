"""The model that learns: loading, adapters, saving. Safetensors only, remote code never run."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recovery.batch import Batch
from recovery.chat import Chat
from recovery.errors import RecoverError
from recovery.vocabulary import Head

FORMAT = 1


@dataclass(frozen=True)
class Adapter:
    """LoRA on every linear layer but the output head. No dropout: teacher = student must give KL = 0."""

    rank: int = 128
    alpha: int = 32


@dataclass
class Student:
    """A causal language model under training (or frozen, for measuring), with the chat it speaks."""

    model: Any
    chat: Chat
    path: str  # what it was loaded from
    updates: int = field(default=0)  # optimiser steps taken: engines serving a copy know when it is stale

    @property
    def causal(self) -> Any:
        """The language model itself, under whatever adapters wrap it."""
        return self.model.get_base_model() if self.has_adapter else self.model

    @property
    def has_adapter(self) -> bool:
        return hasattr(self.model, "peft_config")

    @property
    def adapter_base(self) -> str | None:
        """What the adapters sit on; None where the student's own weights are trained."""
        return next(iter(self.model.peft_config.values())).base_model_name_or_path if self.has_adapter else None

    @property
    def head(self) -> Head:
        return Head.of(self.causal)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.causal.parameters())

    def trainable(self) -> list[Tensor]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def hidden(self, batch: Batch) -> Tensor:
        """The states [targets, width] before the output head, from which each target token is predicted."""
        return hidden_states(self.causal, batch)


def hidden_states(causal: Any, batch: Batch) -> Tensor:
    output = causal.get_decoder()(input_ids=batch.tokens, attention_mask=batch.attention_mask, use_cache=False)
    return batch.predicting(output.last_hidden_state)


def split_revision(reference: str) -> tuple[str, str | None]:
    name, _, revision = reference.partition("@")
    return name, revision or None


def load_student(
    reference: str,
    *,
    adapter: Adapter | None = None,
    frozen: bool = False,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> Student:
    """From a folder or a hub id: full weights to train, or a fresh adapter on them if one is asked for.

    A folder that holds an adapter is loaded on its own base, and that adapter goes on learning."""
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoTokenizer

    stored = _adapter_base(reference)
    causal = load_causal(stored or reference, dtype).to(device)
    where, revision = (reference, None) if Path(reference).is_dir() else split_revision(reference)
    tokenizer = AutoTokenizer.from_pretrained(where, revision=revision, trust_remote_code=False)
    chat = Chat.of(tokenizer, causal.generation_config)
    if stored:
        model = PeftModel.from_pretrained(causal, reference, is_trainable=not frozen, use_safetensors=True)
    elif adapter and not frozen:
        config = LoraConfig(r=adapter.rank, lora_alpha=adapter.alpha, lora_dropout=0.0, target_modules="all-linear")
        model = get_peft_model(causal, config)
    else:
        model = causal
    if frozen:
        model.requires_grad_(False)
    return Student(model.eval(), chat, reference)


def load_causal(reference: str, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    local = Path(reference)
    name, revision = (reference, None) if local.is_dir() else split_revision(reference)
    if local.is_dir() and not any(local.glob("*.safetensors")):
        raise RecoverError(
            f"{reference} holds no safetensors; pickled weights are not loaded because they can run code: "
            "convert the model with transformers' save_pretrained first"
        )
    try:
        return AutoModelForCausalLM.from_pretrained(
            name, revision=revision, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise RecoverError(f"cannot load a model from {reference!r}: {reason}") from error


def parameters_of(reference: str) -> int:
    """How many parameters a model has, from its config alone: no weights are read."""
    from transformers import AutoConfig, AutoModelForCausalLM

    name, revision = (reference, None) if Path(reference).is_dir() else split_revision(reference)
    try:
        config = AutoConfig.from_pretrained(_adapter_base(name) or name, revision=revision, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise RecoverError(f"cannot load a model from {reference!r}: {str(error).strip().splitlines()[0]}") from error
    with torch.device("meta"):
        return sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())


def save_student(student: Student, folder: Path, about: dict[str, Any]) -> None:
    """Written beside its place and renamed, so that a checkpoint is whole or absent."""
    aside = folder.with_name(folder.name + ".partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    student.model.save_pretrained(aside, safe_serialization=True)
    student.chat.tokenizer.save_pretrained(aside)
    kind = "adapter" if student.has_adapter else "full"
    (aside / "recover.json").write_text(json.dumps({"format": FORMAT, "kind": kind, **about}, indent=2) + "\n")
    if folder.exists():
        shutil.rmtree(folder)
    aside.rename(folder)


def describe(folder: str | Path) -> dict[str, Any]:
    """The checkpoint's own `recover.json`; empty where there is none (any model not written by this tool)."""
    path = Path(folder) / "recover.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def _adapter_base(reference: str) -> str | None:
    path = Path(reference) / "adapter_config.json"
    return json.loads(path.read_text())["base_model_name_or_path"] if path.is_file() else None
