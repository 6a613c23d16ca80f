"""Weight-space operations: merging adapters into their base, and interpolating towards the clean model."""

from typing import Any

import torch
from torch import Tensor

from recovery.chunked_loss import at_least_float32
from recovery.errors import RecoverError, first_line
from recovery.models.adapters import beyond_plain_lora
from recovery.models.students import Student, load_causal, load_chat
from recovery.models.weight_files import same_weights

TOKEN_ROWS = ("embed", "wte", "lm_head")  # in the names of weights that have a row for each token


def merge(student: Student) -> Student:
    """Merge the student's adapters into their base, and return a frozen model of full weights.

    The student must not be used afterwards: its base is changed. To train the result, save and load it."""
    if not student.has_adapter:
        raise RecoverError(f"The model {student.path} has full weights already, so there is no adapter to merge.")
    _untie_adapted_embeddings(student)
    try:
        with torch.no_grad():
            model = student.model.merge_and_unload()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of any kind: what peft cannot merge depends on the adapter's method and its layers
        raise RecoverError(
            f"The adapter {student.path} cannot be merged into its base ({first_line(error)}). Export it by itself "
            "(--adapter)."
        ) from error
    model.config._name_or_path = student.path  # the base's own name would mark these weights as clean
    return Student(model.requires_grad_(False), student.chat, student.path, student.updates)


def _untie_adapted_embeddings(student: Student) -> None:
    """Give the output head weights of its own where it shares them with embeddings that the adapter changes."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    embeddings, head = student.causal.get_input_embeddings(), student.causal.get_output_embeddings()
    if isinstance(embeddings, BaseTunerLayer) and embeddings.get_base_layer().weight is head.weight:
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
        student.causal.config.get_text_config().tie_word_embeddings = student.causal.config.tie_word_embeddings = False


class InterpolationError(RecoverError):
    """No line of weights leads from the student to the clean model."""


class WeightInterpolation:
    """Linear interpolation from the student's weights W (share 0) to the clean model (share 1): W + share (clean − W).

    An adapter on the clean model is scaled instead. Shares may be visited in any order: each point is computed from
    both ends, so `move_to(0)` restores the student's weights bit for bit."""

    def __init__(self, student: Student, clean: str):
        self._student = student
        self._targets = _adapter_scales(student, clean) if student.has_adapter else _full_weights(student, clean)
        self._starts = [parameter.detach().cpu().clone() for parameter, _ in self._targets]

    @torch.no_grad()
    def move_to(self, share: float) -> Student:
        for (parameter, end), start in zip(self._targets, self._starts, strict=True):
            start32, end32 = (at_least_float32(t.to(parameter.device)) for t in (start, end))
            parameter.copy_(torch.lerp(start32, end32, share))
        self._student.updates += 1  # tells engines that their copy of the weights is stale
        return self._student


def _adapter_scales(student: Student, clean: str) -> list[tuple[Any, Tensor]]:
    base = student.adapter_base or ""
    if not same_weights(base, clean):
        raise InterpolationError(
            f"The adapter sits on {base}, not on {clean}, so scaling it does not lead there. "
            "Merge it into full weights first."
        )
    if used := beyond_plain_lora(student.model):
        raise InterpolationError(
            f"The adapter uses {used}, so scaling it does not lead to {clean}. Merge it into full weights first."
        )
    # Scaling one factor scales the product.
    factors = [
        parameter
        for name, parameter in student.model.named_parameters()
        if any(f".lora_B.{adapter}." in name for adapter in student.model.active_adapters)
    ]
    return [(factor, torch.zeros_like(factor, device="cpu")) for factor in factors]


def _full_weights(student: Student, clean: str) -> list[tuple[Any, Tensor]]:
    """A clean model whose head is tied to its embeddings has both names for them, so a student with a head of its own
    can move there; a student whose head is tied cannot move to two matrices."""
    ours = dict(student.model.named_parameters())
    causal = load_causal(clean, next(iter(ours.values())).dtype)
    theirs, distinct = dict(causal.named_parameters(remove_duplicate=False)), dict(causal.named_parameters())
    fits = ours.keys() <= theirs.keys() and distinct.keys() <= ours.keys()
    if not fits or not all(same_but_tokens(name, ours[name], theirs[name]) for name in ours):
        raise InterpolationError(
            f"The models {clean} and {student.path} have different shapes. Choose a clean model of the same shape."
        )
    tokens = load_chat(clean).token_rows
    return [
        (parameter, _with_rows_of(parameter, theirs[name].detach(), tokens if has_token_rows(name) else None))
        for name, parameter in ours.items()
    ]


def has_token_rows(name: str) -> bool:
    """Whether a weight has a row for each token; a learned position has one in some families."""
    return any(part in name for part in TOKEN_ROWS) and "position" not in name


def same_but_tokens(name: str, ours: Tensor, theirs: Tensor) -> bool:
    """Whether two weights have one shape, but for the number of tokens."""
    first = int(has_token_rows(name))
    return ours.shape[first:] == theirs.shape[first:]


def _with_rows_of(ours: Tensor, theirs: Tensor, tokens: int | None) -> Tensor:
    """Their weights. Rows behind their `tokens` stay as ours are: they are untrained padding there, and may be tokens
    here."""
    if ours.shape == theirs.shape and (tokens is None or tokens >= len(ours)):
        return theirs
    rows, target = min(len(ours), len(theirs), tokens or len(ours)), ours.detach().cpu().clone()
    target[:rows] = theirs[:rows]
    return target
