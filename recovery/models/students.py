"""Students (the models that are trained): loading and saving. Safetensors only, and no remote code is run."""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from recovery.chunked_loss import Head
from recovery.errors import RecoverError, cannot_load, first_line
from recovery.files import THEN_RESUME, stored
from recovery.hardware import keep_freed_memory
from recovery.models import adapters
from recovery.models.adapters import Adapter, name_and_revision
from recovery.models.chat_template import Chat
from recovery.models.families import disable_dropout, fix_generation_config, head_matches, unscaled_positions
from recovery.models.transformers_4 import add_fields_of_transformers_4
from recovery.models.weight_files import INDEX, SINGLE, shards_of
from recovery.samples import Batch, Sample

FORMAT = 1
PARTIAL = ".partial"  # of what is being written


@dataclass
class Student:
    """A causal language model in training (or frozen, for evaluation), with its tokenizer and chat template."""

    model: Any
    chat: Chat
    path: str  # the folder or hub id it was loaded from
    updates: int = 0  # changes of the weights: tells engines when their copy is stale
    vocabulary: int | None = None  # rows of the head in use, if a teacher's head is padded to another size

    def __post_init__(self) -> None:
        disable_dropout(self.model)

    @property
    def causal(self) -> Any:
        """The language model without the wrapper of its adapters."""
        return self.model.get_base_model() if self.has_adapter else self.model

    @property
    def has_adapter(self) -> bool:
        return hasattr(self.model, "peft_config")

    @property
    def adapter_base(self) -> str | None:
        """The base of the adapters; None if the student's own weights are trained."""
        if not self.has_adapter:
            return None
        config = next(iter(self.model.peft_config.values()))
        return adapters.with_revision(config.base_model_name_or_path, config.revision)

    @property
    def whole_head(self) -> Head:
        """With the tokens that a teacher lacks, which ready-made texts may hold."""
        return Head.from_model(self.causal)

    @property
    def head(self) -> Head:
        head, rows = self.whole_head, self.vocabulary
        bias = None if head.bias is None else head.bias[:rows]
        return head if rows is None else replace(head, weight=head.weight[:rows], bias=bias)

    @property
    def stops(self) -> tuple[int, ...]:
        """The ids that end a turn, as far as the head in use has them."""
        rows = self.vocabulary or self.causal.get_output_embeddings().weight.shape[0]
        return tuple(sorted(id for id in self.chat.eos_ids if id < rows))

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.causal.parameters())

    def forward_flops(self, samples: Iterable[Sample]) -> float:
        """The floating-point operations of one pass: 2 × parameters per token."""
        return 2.0 * self.parameters * sum(len(sample.tokens) for sample in samples)

    def trainable(self) -> list[Tensor]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def hidden(self, batch: Batch) -> Tensor:
        """Return the states [targets, width] before the output head, from which each target token is predicted."""
        decoder, columns = self.causal.get_decoder(), batch.target_columns - 1
        tokens = batch.tokens[:, :-1]  # the last one predicts nothing, and may be behind the last learned position
        if batch.shared and (states := _states_behind_shared(decoder, tokens, batch.shared)) is not None:
            return states[batch.target_rows, columns - batch.shared]
        return decoder(input_ids=tokens, use_cache=False).last_hidden_state[batch.target_rows, columns]


def _states_behind_shared(decoder: Any, tokens: Tensor, shared: int) -> Tensor | None:
    """Return the states of the tokens behind the first `shared`, which are equal in all rows and read once, such as the
    context that a teacher is shown for every prompt; without a gradient.

    None for a model whose layers do not all keep the keys and values of every token, or that keeps none in training."""
    from transformers.cache_utils import DynamicCache

    start = DynamicCache(config=decoder.config)
    if not has_full_attention_only(start):
        return None
    decoder(input_ids=tokens[:1, :shared], past_key_values=start, use_cache=True)
    if start.get_seq_length() != shared:
        return None
    cache = repeated_cache(start, len(tokens))
    return decoder(input_ids=tokens[:, shared:], past_key_values=cache, use_cache=True).last_hidden_state


def has_full_attention_only(cache: Any) -> bool:
    """Return whether every layer stores keys and values of every token (no sliding windows, no recurrent states)."""
    from transformers.cache_utils import DynamicLayer

    return all(type(layer) is DynamicLayer for layer in cache.layers)


def repeated_cache(cache: Any, rows: int) -> Any:
    """Return a cache with the one row of another as each of its rows."""
    from transformers.cache_utils import DynamicCache

    copies = DynamicCache()
    for i, layer in enumerate(cache.layers):
        copies.update(layer.keys.expand(rows, -1, -1, -1), layer.values.expand(rows, -1, -1, -1), i)
    return copies


def hub_commit(reference: str) -> str | None:
    """The commit of a model on the hub that is loaded now, if that can be told."""
    from transformers.utils.hub import cached_file, extract_commit_hash

    name, revision = name_and_revision(reference)
    try:
        file = cached_file(name, "config.json", revision=revision, _raise_exceptions_for_missing_entries=False)
    except OSError:
        return None
    return extract_commit_hash(file, None)


def load_student(
    reference: str,
    *,
    adapter: Adapter | None = None,
    frozen: bool = False,
    dtype: torch.dtype | str = torch.float32,
    device: str = "cpu",
) -> Student:
    """Load a folder or hub id with all weights trainable, or with a new trainable adapter if `adapter` is given.

    A folder that holds an adapter is loaded on its base, and that adapter is trained further. `dtype="auto"` is the one
    the weights are stored in."""
    base = adapters.base_of(reference)
    if base:
        refuse_quantised(reference)
    keep_freed_memory()
    if torch.device(device).type == "cuda":
        # cuDNN's attention plans again for every batch length, which takes several times as long as the batch.
        torch.backends.cuda.enable_cudnn_sdp(False)
    causal = load_causal(base or reference, dtype).to(device)
    chat = load_chat(reference)
    model = causal
    if base:
        model = adapters.load(causal, base, reference, trainable=not frozen)
        causal.generation_config = _generation_config(reference) or causal.generation_config
        fix_generation_config(causal)
    elif adapter and not frozen:
        model = adapters.create(causal, reference, adapter)
    if frozen:
        model.requires_grad_(False)
    model.eval()
    if not head_matches(causal):
        raise RecoverError(
            f"The output layer of {reference} computes its logits in a way this tool does not support. "
            "Choose a model of another family."
        )
    return Student(model, chat, reference)


def load_chat(reference: str) -> Chat:
    """Load a model's tokenizer and chat template without its weights."""
    from transformers import AutoTokenizer

    name, revision = name_and_revision(_folder_with(reference, "tokenizer_config.json"))
    try:
        # Mistral's own tokenizer, where vLLM has installed it, has no chat template that could be read.
        tokenizer = AutoTokenizer.from_pretrained(
            name, revision=revision, trust_remote_code=False, mistral_format=False
        )
    except Exception as error:  # of any kind: tokenizers raises Exception itself for a file of a newer version
        raise cannot_load("tokenizer", reference, error) from error
    if len(tokenizer) < 16:  # transformers' default if the tokenizer's files are missing
        raise RecoverError(
            f"The model {reference} has no usable tokenizer. Put its tokenizer.json and tokenizer_config.json there."
        )
    separator = checkpoint_metadata(reference).get("separator")
    generation = _generation_config(reference) or SimpleNamespace(eos_token_id=_ends_of_config(reference))
    return Chat.from_tokenizer(tokenizer, generation, separator=separator)


def _ends_of_config(reference: str) -> int | list[int] | None:
    """As the config.json in the folder names them. The default of a kind of model may be an ordinary token of it."""
    file = Path(adapters.base_of(reference) or reference) / "config.json"
    config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    ends = config.get("eos_token_id", (config.get("text_config") or {}).get("eos_token_id"))
    return ends if isinstance(ends, int | list) else None


def generation_ends(reference: str) -> tuple[int, ...]:
    """The ids at which generation stops; without a generation config transformers takes those of the model's config."""
    config = _generation_config(reference) or config_of(reference).get_text_config()
    ends = getattr(config, "eos_token_id", None)
    named = ends if isinstance(ends, list | tuple) else () if ends is None else (ends,)
    return tuple(id for id in named if id >= 0)  # -1 stands for none in old files


def save_generation_ends(reference: str, ends: Sequence[int], folder: Path) -> None:
    """Write the model's generation config into a folder, with other ids at which generation stops."""
    config = _generation_config(reference)
    values = {} if config is None else config.to_diff_dict()
    (folder / "generation_config.json").write_text(json.dumps(values | {"eos_token_id": list(ends)}, indent=2) + "\n")


def _generation_config(reference: str) -> Any:
    from transformers import GenerationConfig

    name, revision = name_and_revision(_folder_with(reference, "generation_config.json"))
    _check_generation_config(Path(name) / "generation_config.json")
    try:
        return GenerationConfig.from_pretrained(name, revision=revision)
    except (OSError, ValueError):  # older models define their EOS in the tokenizer only
        return None


def _check_generation_config(file: Path) -> None:
    """Raise if it is broken: transformers takes it for missing, and replies would not end where it says."""
    try:
        ends = json.loads(file.read_bytes()).get("eos_token_id") if file.is_file() else None
        if all(type(id) is int for id in (ends if isinstance(ends, list) else [ends] if ends is not None else [])):
            return
    except (ValueError, AttributeError):
        pass
    raise RecoverError(
        f"The file {file} is not valid: it must be a JSON object, with a number or a list of numbers as eos_token_id. "
        "Fix or delete it."
    )


def _folder_with(reference: str, file: str) -> str:
    """The model itself, or the base of an adapter whose folder lacks the file."""
    base = adapters.base_of(reference)
    return base if base and not (Path(reference) / file).is_file() else reference


def load_causal(reference: str, dtype: torch.dtype | str) -> Any:
    from transformers import AutoModelForCausalLM

    local = Path(reference)
    name, revision = name_and_revision(reference)
    if local.is_dir() and not any(local.glob("*.safetensors")):
        raise RecoverError(
            f"The folder {reference} holds no safetensors. Pickled weights are not loaded because they can run code. "
            "Convert the model with transformers' save_pretrained first."
        )
    refuse_quantised(reference)
    _check_generation_config(local / "generation_config.json")
    if (local / INDEX).is_file() and not (local / SINGLE).is_file():
        shards_of(local / INDEX)  # raises if it is broken
    # Gemma 2 caps the scores of its attention, which torch's own attention cannot do.
    is_capped = getattr(config_of(reference).get_text_config(), "attn_logit_softcapping", None) is not None
    attention = {"attn_implementation": "eager"} if is_capped else {}
    try:
        causal, loading = AutoModelForCausalLM.from_pretrained(
            name,
            revision=revision,
            dtype=dtype,
            **attention,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except torch.OutOfMemoryError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:  # RuntimeError: of weights of other shapes
        raise cannot_load("model", reference, error) from error
    if missing := sorted(loading["missing_keys"]):  # transformers fills them with random numbers
        raise RecoverError(
            f"The weights of {reference} lack {missing[0]!r} ({len(missing)} missing in all): they were renamed, or "
            "not saved. Save the model with transformers' save_pretrained."
        )
    if getattr(causal, "_hf_peft_config_loaded", False):  # transformers loads adapters from the hub, too
        raise RecoverError(f"The model {reference} is an adapter on the hub. Download it and pass its folder instead.")
    fix_generation_config(causal)
    return causal


def refuse_quantised(reference: str) -> None:
    quantisation = getattr(config_of(reference), "quantization_config", None)
    if quantisation and (below := adapters.base_of(reference)):
        raise RecoverError(
            f"The adapter {reference} names a quantised base ({below}). Write the model that this was quantised from "
            f"as base_model_name_or_path into {Path(reference) / 'adapter_config.json'}."
        )
    if quantisation:
        fields = dict(quantisation if isinstance(quantisation, dict) else vars(quantisation))
        method = fields.get("quant_method", "unknown method")
        raise RecoverError(
            f"The weights of {reference} are quantised ({getattr(method, 'value', method)}), so they can neither be "
            "trained nor compared. Load the model, call its dequantize(), and save it; a GGUF file can be --base."
        )


def parameters_of(reference: str) -> int:
    """Return the number of parameters of a model, from its config alone."""
    return _parameters_by(config_of(reference).to_json_string(use_diff=False), reference)


@lru_cache  # a job asks for it dozens of times; by the config, too, as a folder may change
def _parameters_by(config: str, reference: str) -> int:
    return sum(p.numel() for p in model_without_weights(reference).parameters())


def model_without_weights(reference: str) -> Any:
    from transformers import AutoModelForCausalLM

    config = config_of(reference)
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config)
    except Exception as error:  # of any kind: families check their numbers and names each in their own way
        if not first_line(error).startswith("Unrecognized configuration class"):
            raise invalid_config(reference, error) from error
        raise RecoverError(
            f"The model {reference} is no language model that continues text (its type is {config.model_type}). Name "
            "a decoder-only model, such as HuggingFaceTB/SmolLM2-135M-Instruct."
        ) from error


def invalid_config(reference: str, error: BaseException) -> RecoverError:
    return RecoverError(
        f"The config.json of {reference} is not valid ({first_line(error)}). Copy or download it again, or save the "
        "model again with transformers' save_pretrained."
    )


def window_of(reference: str) -> int | None:
    """How many tokens a model reads at most, if its config says so."""
    config = config_of(reference).get_text_config()
    return unscaled_positions(config) or getattr(config, "max_position_embeddings", None)


def config_of(reference: str) -> Any:
    """Load the config of a model, or of an adapter's base."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    weights = adapters.base_of(reference) or reference
    name, revision = name_and_revision(weights)
    if name.startswith((".", "/", "~")) and not Path(name).exists():
        raise RecoverError(f"There is no folder {name}. Name a folder that exists, or a hub id.")
    if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
        raise RecoverError(f"The folder {name} has no config.json. Name the folder that save_pretrained wrote.")
    try:
        return AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=False)
    except (OSError, ValueError, StrictDataclassError) as error:
        problem = cannot_load("model", weights, error)
        if isinstance(error, StrictDataclassError):
            problem = invalid_config(weights, error.__cause__ or error)
        if weights != reference:
            file = Path(reference) / "adapter_config.json"
            problem = RecoverError(
                f"{problem} It is the base of the adapter: {file} names it (base_model_name_or_path)."
            )
        raise problem from error


def save_student(
    student: Student,
    folder: Path,
    extra: dict[str, Any],
    add: Callable[[Path], object] = lambda files: None,
    advice: str = THEN_RESUME,
) -> None:
    """Write a checkpoint under another name and rename it, so that it is always complete or absent.

    `add` writes further files beside the others. An empty folder, which may be where a disk is mounted, stays, and the
    complete files are moved into it. `advice` is what to do where the disk is full."""
    is_kept = folder.is_dir() and has_no_files(folder)
    partial = folder / PARTIAL if is_kept else folder.with_name(folder.name + PARTIAL)
    metadata: dict[str, Any] = {"format": FORMAT, "kind": "full", "separator": student.chat.separator, **extra}
    with stored(partial, folder, advice):
        if student.adapter_base:
            adapters.save(student.model, partial)
            metadata |= {"kind": "adapter", "base": student.adapter_base}
            if Path(student.adapter_base).is_dir():  # both folders may be moved together
                metadata["base_from_here"] = os.path.relpath(student.adapter_base, folder)
            if student.causal.generation_config is not None:
                student.causal.generation_config.save_pretrained(partial)
        else:
            student.model.save_pretrained(partial, safe_serialization=True)
        student.chat.tokenizer.save_pretrained(partial)
        add_fields_of_transformers_4(partial)
        (partial / "recover.json").write_text(json.dumps(metadata, indent=2) + "\n")
        for weights in partial.glob("*.safetensors"):  # safetensors lets their owner alone read them
            weights.chmod((partial / "recover.json").stat().st_mode)
        add(partial)
    if is_kept:
        for file in partial.iterdir():
            file.rename(folder / file.name)
        partial.rmdir()
        return
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)


def has_no_files(folder: Path) -> bool:
    """But for what a save that failed may have left."""
    return all(file.name == PARTIAL for file in folder.iterdir())


def checkpoint_metadata(folder: str | Path) -> dict[str, Any]:
    """Return the checkpoint's recover.json, or an empty dict for a model that this tool did not write."""
    path = Path(folder) / "recover.json"
    return adapters.read_json(path) if path.is_file() else {}
