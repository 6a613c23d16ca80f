"""The model that learns: loading and saving. Safetensors only, remote code never run."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from recovery import adapters
from recovery.adapters import Adapter
from recovery.batch import Batch
from recovery.chat import Chat
from recovery.errors import RecoverError
from recovery.vocabulary import Head

FORMAT = 1


@dataclass
class Student:
    """A causal language model under training (or frozen, for measuring), with the chat it speaks."""

    model: Any
    chat: Chat
    path: str  # what it was loaded from
    updates: int = 0  # optimiser steps taken: engines serving a copy know when it is stale
    vocabulary: int | None = None  # rows of the head that count, where a teacher's head is padded to another size

    def __post_init__(self) -> None:
        without_dropout(self.model)

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
        if not self.has_adapter:
            return None
        config = next(iter(self.model.peft_config.values()))
        return adapters.with_revision(config.base_model_name_or_path, config.revision)

    @property
    def head(self) -> Head:
        head, rows = Head.of(self.causal), self.vocabulary
        bias = None if head.bias is None else head.bias[:rows]
        return head if rows is None else replace(head, weight=head.weight[:rows], bias=bias)

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


def without_dropout(model: Any) -> None:
    """A dropped unit would set a teacher that is the student apart from it, and a resumed run from an unbroken one."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout", "activation_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def hidden_states(causal: Any, batch: Batch) -> Tensor:
    output = causal.get_decoder()(input_ids=batch.tokens, use_cache=False)
    return batch.predicting(output.last_hidden_state)


def split_revision(reference: str) -> tuple[str, str | None]:
    name, _, revision = reference.partition("@")
    return name, revision or None


def load_student(
    reference: str,
    *,
    adapter: Adapter | None = None,
    stack: bool = False,
    frozen: bool = False,
    dtype: torch.dtype | str = torch.float32,
    device: str = "cpu",
) -> Student:
    """From a folder or a hub id: full weights to train, or a fresh adapter on them if one is asked for.

    A folder that holds an adapter is loaded on its own base, and that adapter goes on learning; with `stack` it stays
    as it is and a fresh one learns on top of it. `dtype="auto"` is the one the weights are stored in."""
    base = adapters.base_of(reference)
    if torch.device(device).type == "cuda":
        # cuDNN's attention plans anew for every length of a batch, which takes several times as long as the batch.
        torch.backends.cuda.enable_cudnn_sdp(False)
    causal = load_causal(base or reference, dtype).to(device)
    chat = load_chat(reference)
    model = causal
    if base:
        model = adapters.stored(causal, base, reference, learns=not frozen)
        if stack and not frozen:
            model = adapters.stack(model, adapter or Adapter())
    elif adapter and not frozen:
        model = adapters.fresh(causal, reference, adapter)
    if frozen:
        model.requires_grad_(False)
    return Student(model.eval(), chat, reference)


def load_chat(reference: str) -> Chat:
    """How a model is spoken to, without its weights."""
    from transformers import AutoTokenizer, GenerationConfig

    base = adapters.base_of(reference)
    spoken = base if base and not (Path(reference) / "tokenizer_config.json").is_file() else reference
    where, revision = (spoken, None) if Path(spoken).is_dir() else split_revision(spoken)
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, revision=revision, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise RecoverError(f"cannot load a tokenizer from {reference!r}: {_first_line(error)}") from error
    if len(tokenizer) < 16:  # what transformers makes up where the tokenizer's files are missing
        raise RecoverError(
            f"{reference} has no usable tokenizer; put its tokenizer.json and tokenizer_config.json there"
        )
    try:
        ends = GenerationConfig.from_pretrained(where, revision=revision)
    except (OSError, ValueError):  # older models keep their EOS in the tokenizer alone
        ends = None
    return Chat.of(tokenizer, ends)


def load_causal(reference: str, dtype: torch.dtype | str) -> Any:
    from transformers import AutoModelForCausalLM

    local = Path(reference)
    name, revision = (reference, None) if local.is_dir() else split_revision(reference)
    if local.is_dir() and not any(local.glob("*.safetensors")):
        raise RecoverError(
            f"{reference} holds no safetensors; pickled weights are not loaded because they can run code: "
            "convert the model with transformers' save_pretrained first"
        )
    try:
        causal = AutoModelForCausalLM.from_pretrained(
            name, revision=revision, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise RecoverError(f"cannot load a model from {reference!r}: {_first_line(error)}") from error
    if getattr(causal, "_hf_peft_config_loaded", False):  # transformers looks on the hub for adapters, too
        raise RecoverError(f"{reference} is an adapter on the hub: download it, and give its folder instead")
    return causal


def parameters_of(reference: str) -> int:
    """How many parameters a model has, from its config alone: no weights are read."""
    from transformers import AutoModelForCausalLM

    config = config_of(reference)
    with torch.device("meta"):
        return sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())


def config_of(reference: str) -> Any:
    """Of a model, or of what an adapter sits on."""
    from transformers import AutoConfig

    weights = adapters.base_of(reference) or reference
    name, revision = (weights, None) if Path(weights).is_dir() else split_revision(weights)
    try:
        return AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise RecoverError(f"cannot load a model from {reference!r}: {_first_line(error)}") from error


def save_student(student: Student, folder: Path, about: dict[str, Any]) -> None:
    """Written beside its place and renamed, so that a checkpoint is whole or absent."""
    aside = folder.with_name(folder.name + ".partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    record: dict[str, Any] = {"format": FORMAT, "kind": "full", **about}
    if student.adapter_base:
        adapters.save(student.model, aside)
        record |= {"kind": "adapter", **adapters.where_the_base_is(student.adapter_base, folder)}
    else:
        student.model.save_pretrained(aside, safe_serialization=True)
    student.chat.tokenizer.save_pretrained(aside)
    (aside / "recover.json").write_text(json.dumps(record, indent=2) + "\n")
    if folder.exists():
        shutil.rmtree(folder)
    aside.rename(folder)


def describe(folder: str | Path) -> dict[str, Any]:
    """The checkpoint's own `recover.json`; empty where there is none (any model not written by this tool)."""
    path = Path(folder) / "recover.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except ValueError as error:
        raise RecoverError(f"{path} is not valid JSON ({error}); mend it, or delete it") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
