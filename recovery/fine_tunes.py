"""Whether a model from outside was fine-tuned from a base, as far as their files can show it, before either is loaded.

A wrong base, weights that are missing, renamed or broken would otherwise only show as bad scores.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from peft import PeftConfig
from torch import Tensor

from recovery.errors import RecoverError, first_line
from recovery.models.adapters import WEIGHTS, base_of, check_weights, does_not_fit, head_changed
from recovery.models.chat_template import added_tokens, check_same_vocabulary, same_chat_template
from recovery.models.interpolation import has_token_rows, same_but_tokens
from recovery.models.students import config_of, load_causal, load_chat, model_without_weights, refuse_quantised
from recovery.models.weight_files import (
    BUFFER,
    NOT_STORED,
    same_weights,
    shape_reader,
    tensor_files,
    tensor_names,
    tensor_reader,
)

LAYER = re.compile(r"\w+\.\d+(?=\.)")  # such as layers.7, also as a part of a longer name
COMPARED = 12  # matrices whose directions are compared
UNRELATED = 0.3  # median cosine between the matrices of two models; of two random ones it is about 0


@dataclass(frozen=True)
class FineTune:
    """What the files of a fine-tune say about it and its base."""

    added_tokens: int = 0
    other_template: bool = False
    same_weights: bool = False  # as the base

    def notes(self, base: str) -> list[str]:
        notes = []
        if self.same_weights:
            notes.append(f"Its weights are those of {base}: nothing was trained, or nothing was saved")
        if self.added_tokens:
            some = "1 token" if self.added_tokens == 1 else f"{self.added_tokens:,} tokens"
            notes.append(f"It has {some} that {base} lacks; a repair teaches only the tokens that both have")
        if self.other_template:
            notes.append(f"Its chat template is not that of {base}, so it reads other prompts than {base} does")
        return notes


def inspect_fine_tune(model: str, base: str) -> FineTune:
    """Compare the files of both; raise RecoverError if the model is broken or was not trained from the base."""
    below = base_of(model)
    for reference in (model, base):
        refuse_quantised(reference)
    family, base_family = (config_of(reference).get_text_config().model_type for reference in (model, base))
    if below is None and family != base_family:
        raise RecoverError(
            f"The model {model} is of the family {family} and {base} of {base_family}, so it was not fine-tuned from "
            "it. Name the model that it came from as --base."
        )
    same_weights = _check_adapter(model, below, base) if below is not None else False
    chat, base_chat = load_chat(model), load_chat(base)
    if not base_chat.tokenizer.chat_template:
        raise RecoverError(
            f"The base {base} has no chat template, so there is no chat to compare with. Name the chat model that was "
            "fine-tuned as --base."
        )
    if not chat.tokenizer.chat_template:
        raise RecoverError(
            "The fine-tune has no chat template, so it cannot be asked anything. Copy the base's chat template "
            "(chat_template.jinja, or chat_template in tokenizer_config.json) into its folder."
        )
    check_same_vocabulary(chat, base_chat, is_base=True)
    same_weights = same_weights or (below is None and _check_full_weights(model, base))
    return FineTune(added_tokens(chat, base_chat), not same_chat_template(chat, base_chat), same_weights)


def _check_adapter(folder: str, below: str, base: str) -> bool:
    """Whether it changes nothing: the factors that begin at zero are zero still."""
    if not same_weights(below, base):
        raise RecoverError(
            f"The adapter {folder} was trained on {below}, not on {base}. Name that model as --base, or merge the "
            "adapter and name the result."
        )
    check_weights(folder)
    try:
        config = PeftConfig.from_pretrained(folder)
    except (ValueError, KeyError, TypeError) as error:
        raise RecoverError(
            f"The adapter_config.json of {folder} cannot be read ({first_line(error)}). Save the adapter again with "
            "peft's save_pretrained, or install a newer peft."
        ) from error
    if config.is_prompt_learning:
        raise RecoverError(
            f"The adapter {folder} learned a prompt instead of weights (prompt, prefix or p-tuning), which is not "
            "supported. Only adapters that change weights are, such as LoRA."
        )
    file = Path(folder) / WEIGHTS
    names = tensor_names(file)
    originals = tensor_files(base)
    modules = {name.removesuffix(".weight") for name in originals}
    model = model_without_weights(base)
    modules |= {name for name, _ in model.named_modules()}  # files may have other names
    changed = [name.removeprefix("base_model.model.").partition(".lora_")[0] for name in names if ".lora_" in name]
    if changed and modules.isdisjoint(changed):  # peft would load it without a word, and change nothing
        raise RecoverError(
            f"The adapter {folder} changes {changed[0]!r}, which {base} does not have: its layers were renamed, or "
            "it belongs to another model. Save it again from the model that it was trained on."
        )
    tokens = [name for name in names if "trainable_tokens_" in name and has_token_rows(name)]
    is_tied = getattr(model.config.get_text_config(), "tie_word_embeddings", False)
    if any(name.rpartition(".")[2].startswith("lm_head") for name in changed) or any(
        is_tied or "lm_head" in name for name in tokens
    ):
        raise head_changed(folder)
    tensor_of, original_of = tensor_reader(dict.fromkeys(names, file)), tensor_reader(originals)
    for name in sorted(names):
        tensor = tensor_of(name)
        _check_finite(folder, name, tensor)
        has_rank = config.peft_type == "LORA" and not config.rank_pattern and not config.target_parameters
        if has_rank and ".lora_A." in name and len(tensor) != config.r:
            raise RecoverError(
                f"The adapter_config.json of {folder} is not that of its weights: it says rank {config.r}, and they "
                f"have {len(tensor)}. Copy the adapter_config.json that was saved with them."
            )
        replaced = name.removeprefix("base_model.model.")
        if replaced in originals and tensor.shape != original_of(replaced).shape:
            raise does_not_fit(folder, base, f"{replaced} has another shape")
    factors = [name for name in names if "lora_B" in name]
    is_plain = all(".lora_A" in name or ".lora_B" in name for name in names)
    return is_plain and not any(bool(tensor_of(name).any()) for name in factors)


def _check_full_weights(model: str, base: str) -> bool:
    """Whether the weights equal the base's."""
    ours, theirs = tensor_files(model), tensor_files(base)
    lacks_layers = _check_config(model, ours, base)
    if lacks_layers or any(name not in ours and not name.endswith(NOT_STORED) for name in theirs):
        load_causal(model, "auto")  # raises if they are missing; some families have two names for one weight
    matrices = [name for name in theirs if name in ours]
    every = max(1, len(matrices) // COMPARED)
    compared = {*matrices[::every], *(name for name in matrices if has_token_rows(name))}
    cosines, equal = [], bool(matrices)
    tensor_of, original_of = tensor_reader(ours), tensor_reader(theirs)
    for name in sorted(ours):
        tensor = tensor_of(name)
        _check_finite(model, name, tensor)
        if name not in theirs and equal and not name.endswith(BUFFER):  # a head may be a copy of the embedding
            equal = any(torch.equal(tensor.float(), original_of(e).float()) for e in theirs if has_token_rows(e))
        if name not in theirs or (name not in compared and not equal):
            continue
        original = original_of(name)
        if not same_but_tokens(name, tensor, original):
            raise RecoverError(
                f"The weights {name!r} of {model} have the shape {list(tensor.shape)}, those of {base} "
                f"{list(original.shape)}, so it was not fine-tuned from it. Name the model that it came from as --base."
            )
        if has_token_rows(name) and len(tensor) < len(original):
            tokens = load_chat(base).token_rows
            if len(tensor) < tokens:  # rows beyond them are padding, which a fine-tune may lack
                raise RecoverError(
                    f"The model {model} has embeddings for {len(tensor):,} tokens, but {base} has {tokens:,} tokens. "
                    "Save it with the base's tokens: resize_token_embeddings must not be given a smaller number."
                )
        rows = min(len(tensor), len(original)) if has_token_rows(name) else None
        a, b = (t[:rows].flatten().float() if rows else t.flatten().float() for t in (tensor, original))
        equal = equal and len(a) == tensor.numel() and bool(torch.equal(a, b))
        if tensor.dim() > 1:
            cosines.append(float(torch.nn.functional.cosine_similarity(a, b, dim=0)))
    if cosines and median(cosines) < UNRELATED:
        raise RecoverError(
            f"The weights of {model} have nothing in common with those of {base} (cosine {median(cosines):.2f}), so it "
            "was not fine-tuned from it. Name the model that it came from as --base."
        )
    return equal


def _check_config(model: str, files: dict[str, Path], base: str) -> bool:
    """Whether its config.json has layers of which its files have nothing; raise if its weights have other shapes there,
    or if it lacks layers of the base that the files have. Where transformers joins weights as it loads them, the names
    are others, and nothing is told."""
    by_config, of_base = (model_without_weights(reference).state_dict() for reference in (model, base))
    names, shape_of = [name for name in by_config if name in files], shape_reader(files)
    other = [f"{name!r} has the shape {list(by_config[name].shape)} by it" for name in names
             if shape_of(name) != list(by_config[name].shape)]  # fmt: skip
    other += [f"it has no {name!r}" for name in of_base if name in files and name not in by_config]
    if other:
        raise RecoverError(
            f"The config.json of {model} is not that of its weights: {other[0]}. Copy the config.json that was saved "
            "with them."
        )
    layers = {layer for name in files for layer in LAYER.findall(name)}
    return any(layer not in layers for name in by_config for layer in LAYER.findall(name)[:1])


def _check_finite(model: str, name: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        return
    broken = tensor.isnan() if tensor.dim() == 0 else ~tensor.isfinite()  # limits beside the weights may be infinite
    if bool(broken.any()):
        raise RecoverError(
            f"The weights {name!r} in {model} are not finite numbers (NaN or infinity), so the training went wrong "
            "before it was saved. Take an earlier checkpoint of it."
        )
