"""The model that learns: loading and saving. Safetensors only, remote code never run."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from recovery.batch import Batch
from recovery.errors import RecoverError
from recovery.losses.chunked_loss import Head
from recovery.models import adapters
from recovery.models.adapters import Adapter
from recovery.models.chat import Chat

FORMAT = 1
LOOKED_AT = 8  # tokens, by which is seen whether a head is known


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
        for holder in (module, getattr(module, "config", None)):  # Falcon asks its config at every step
            _drop_nothing(holder)


def _drop_nothing(holder: Any) -> None:
    """Each family has names of its own for the shares: attention_dropout, residual_dropout, attn_dropout_p, …"""
    named = [name for name, value in getattr(holder, "__dict__", {}).items() if isinstance(value, float)]
    for name in named:
        if "dropout" in name or "pdrop" in name:
            setattr(holder, name, 0.0)


def hidden_states(causal: Any, batch: Batch) -> Tensor:
    output = causal.get_decoder()(input_ids=batch.tokens, use_cache=False)
    return batch.predicting(output.last_hidden_state)


def split_revision(reference: str) -> tuple[str, str | None]:
    name, _, revision = reference.partition("@")
    return name, revision or None


def _name_and_revision(reference: str) -> tuple[str, str | None]:
    return (reference, None) if Path(reference).is_dir() else split_revision(reference)


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
    model.eval()
    _must_know_its_head(causal, reference)
    return Student(model, chat, reference)


def _must_know_its_head(causal: Any, reference: str) -> None:
    """Losses are computed from the states by `Head`; a family with a step that it does not know would learn wrongly."""
    if not _knows_its_head(causal):
        raise RecoverError(
            f"the output layer of {reference} computes its logits in a way this tool does not know, so it would learn "
            "from wrong ones; choose a model of another family"
        )


@torch.no_grad()
def _knows_its_head(causal: Any) -> bool:
    tokens = torch.arange(LOOKED_AT, device=next(causal.parameters()).device)[None]
    states: list[Tensor] = []
    try:
        # Those of the very pass that its logits are of: another pass of some families would differ by itself.
        seen = causal.get_decoder().register_forward_hook(lambda *said: states.append(said[-1].last_hidden_state))
        theirs, head = causal(input_ids=tokens, use_cache=False).logits, Head.of(causal)
        seen.remove()
    except (AttributeError, TypeError):  # what is called its decoder or its output embeddings is something else
        return False
    if not theirs.isfinite().all():  # broken weights, or a dtype too narrow for them: that says nothing of the head
        return True
    if not states:
        return False
    ours = head.logits(states[-1])
    eps = max(torch.finfo(part.dtype).eps for part in (states[-1], head.weight))  # Mamba keeps its states in float32
    rounding = max(1e-4, 8 * eps) * float(theirs.abs().max())
    return ours.shape == theirs.shape and torch.allclose(ours, theirs.to(ours.dtype), rtol=0.0, atol=rounding)


def load_chat(reference: str) -> Chat:
    """How a model is spoken to, without its weights."""
    from transformers import AutoTokenizer, GenerationConfig

    base = adapters.base_of(reference)
    folder = Path(reference)  # of an adapter, it may hold neither of these files
    spoken = base if base and not (folder / "tokenizer_config.json").is_file() else reference
    ended = base if base and not (folder / "generation_config.json").is_file() else reference
    where, revision = _name_and_revision(spoken)
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, revision=revision, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise RecoverError(f"cannot load a tokenizer from {reference!r}: {_first_line(error)}") from error
    if len(tokenizer) < 16:  # what transformers makes up where the tokenizer's files are missing
        raise RecoverError(
            f"{reference} has no usable tokenizer; put its tokenizer.json and tokenizer_config.json there"
        )
    where, revision = _name_and_revision(ended)
    try:
        ends = GenerationConfig.from_pretrained(where, revision=revision)
    except (OSError, ValueError):  # older models keep their EOS in the tokenizer alone
        ends = None
    return Chat.of(tokenizer, ends)


def load_causal(reference: str, dtype: torch.dtype | str) -> Any:
    from transformers import AutoModelForCausalLM

    local = Path(reference)
    name, revision = _name_and_revision(reference)
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
    _make_its_generation_valid(causal)
    return causal


def _make_its_generation_valid(causal: Any) -> None:
    """transformers loads a generation config that contradicts itself, as several families ship one, and then refuses
    to save the model: most often one with the flags of sampling that does not say `do_sample`."""
    from transformers import GenerationConfig

    config = causal.generation_config
    if config is None or _is_valid(config):
        return
    config.do_sample = True
    if not _is_valid(config):
        kept = {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        causal.generation_config = GenerationConfig(**kept)


def _is_valid(generation_config: Any) -> bool:
    try:
        generation_config.validate(strict=True)
    except ValueError:
        return False
    return True


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
    name, revision = _name_and_revision(weights)
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
