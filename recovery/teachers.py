"""Teachers: models that score the student's tokens. None is trained here.

`FrozenTeacher` is a separate model. `AdapterOffTeacher` is the clean base inside the student: its weights with the
adapters off, without a second copy in memory. `AdapterTeacher` is another adapter on those weights. None of these
scores with the student's trained weights, so a student cannot be distilled from itself by accident.

`LiveTeacher` and `EmaTeacher` are the student itself, as it is or averaged over its steps. Without a context that the
student does not see, such a teacher agrees with the student, or nearly.

`RouterTeacher` chooses among several teachers by a sample's domain. `InContext` has any teacher read the prompt that a
row carries for it (`teacher_prompt`) instead of the student's, such as the same question with its solution. What a
teacher reads and whose weights it has are separate choices. `recovery.server_teacher` has the teacher on servers.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from recovery.chunked_loss import Head
from recovery.distributed import size
from recovery.divergences import identity_of_stops, is_in, merge_stops
from recovery.errors import RecoverError
from recovery.models import adapters
from recovery.models.chat_template import added_tokens, check_same_tokenizer, check_tokens
from recovery.models.families import disable_dropout
from recovery.models.students import Student, checkpoint_metadata, load_student
from recovery.samples import Batch, Sample, common_start

SHARED_CONTEXT = 64  # tokens; a shorter one is read in every row
EMA_DECAY = 0.95  # a step moves the average by 5 % towards the student
Part = slice | Tensor  # selects some of the targets


class Compared(NamedTuple):
    """Log-probs of student and teacher over the same events, in which all stops are one."""

    student: Tensor
    teacher: Tensor
    stops: Tensor | float  # at each position, what KL(teacher ‖ student) has beside these: which stop it is


class TeacherLogprobs:
    """A teacher's next-token log-probs at each target of a batch, computed for one chunk of targets at a time.

    All else follows from `logprobs`; a teacher that knows only some of them has methods of its own."""

    def logprobs(self, part: Part) -> Tensor:
        """Return the log-probs of the whole vocabulary [positions, vocabulary]."""
        raise NotImplementedError

    def compare(self, student: Tensor, part: Part, stops: Sequence[int] = ()) -> Compared:
        """Compare the student's log-probs [positions, vocabulary] with the teacher's over the same events: the
        vocabulary, or the tokens that the teacher lists and a bucket for all others. All of `stops` are one event."""
        teacher = self.logprobs(part)
        if len(stops) < 2:
            return Compared(student, teacher, 0.0)
        identity = identity_of_stops(student[:, list(stops)], teacher[:, list(stops)])
        return Compared(merge_stops(student, stops), merge_stops(teacher, stops), identity)

    def at_tokens(self, events: Tensor, tokens: Tensor, part: Part, stops: Sequence[int] = ()) -> Tensor:
        """Return the log-prob of the event that each position's token belongs to, among those of `compare`."""
        columns = tokens.masked_fill(is_in(tokens, stops), stops[0]) if stops else tokens
        return events.gather(-1, columns[:, None]).squeeze(-1)

    def stopping(self, events: Tensor, part: Part, stops: Sequence[int]) -> Tensor:
        """Return the probability of `stops` at each position, among the events of `compare`."""
        return events[:, list(stops)].exp().sum(-1)

    def likeliest(self, part: Part, count: int) -> tuple[Tensor, Tensor]:
        """Return the likeliest tokens [positions, count] and their log-probs, likeliest first."""
        return likeliest(self.logprobs(part), count)


def likeliest(logprobs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    top = logprobs.topk(min(count, logprobs.shape[-1]))
    return top.indices, top.values


@dataclass(frozen=True)
class Distribution(TeacherLogprobs):
    """A teacher's next-token distribution at each target, stored as hidden states; logits are computed by chunk."""

    hidden: Tensor
    head: Head

    @classmethod
    def from_hidden(cls, hidden: Tensor, head: Head) -> "Distribution":
        """Use the precision of the student's logits, so that equal models have equal distributions.

        The head is cast once here: it is far larger than a chunk of states, and each chunk would cast it again."""
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        return cls(hidden.to(dtype), replace(head, weight=head.weight.detach().to(dtype)))

    def logprobs(self, part: Part) -> Tensor:
        return torch.log_softmax(self.head.logits(self.hidden[part]), dim=-1)


class Teacher(Protocol):
    def flops(self, samples: list[Sample]) -> float:
        """Return the floating-point operations of one pass over the samples (2 × parameters per token)."""
        ...

    def distribution(self, batch: Batch) -> TeacherLogprobs: ...


class AsLargeAsStudent:
    """A teacher that is the student's own model, or has as many weights."""

    _student: Student

    def flops(self, samples: list[Sample]) -> float:
        return self._student.forward_flops(samples)


class FrozenTeacher:
    """A checkpoint loaded as a separate model."""

    def __init__(self, reference: str, *, dtype: torch.dtype = torch.float32, device: str = "cpu"):
        self.model = load_student(reference, frozen=True, dtype=dtype, device=device)
        self._student: Student | None = None  # unless bound before, `train` binds it
        self._tokens: int | None = None  # how many it has, if the student has more

    def flops(self, samples: list[Sample]) -> float:
        return self.model.forward_flops(samples)

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        if self._tokens is not None and self._student is not None:
            check_tokens((sample.tokens for sample in batch.samples), self._tokens, self._student.chat)
            batch = replace(batch, tokens=batch.tokens.clamp(max=self._tokens - 1))  # of the padding
        if self._student is not None:
            self.model.vocabulary = self._student.vocabulary
        return Distribution.from_hidden(self.model.hidden(batch), self.model.head)

    def bind_student(self, student: Student) -> None:
        """Check once that the tokenizers agree, and agree on the vocabulary if the heads are padded to different sizes,
        or the student has tokens that the teacher lacks: the student uses the fewest rows of all its teachers, and each
        teacher reads that number at every batch, since a teacher bound later may lower it."""
        if self._student is student:
            return
        rows = [len(head.weight) for head in (student.head, Head.from_model(self.model.causal))]
        if added_tokens(student.chat, self.model.chat):
            self._tokens = self.model.chat.token_rows
            rows.append(self._tokens)
        check_same_tokenizer(student.chat, self.model.chat)
        if len(set(rows)) > 1:
            student.vocabulary = min(rows)
        self._student = student


def can_switch_to(student: Student, base: str) -> bool:
    """Whether the student with its adapters off is that model."""
    below = student.adapter_base
    return bool(below and adapters.same_model(below, base) and not adapters.trains_biases(student.model))


class AdapterOffTeacher(AsLargeAsStudent):
    """The student's base weights with its adapters off; training does not change them.

    If `clean` is given, the base must be that model. Otherwise it must be a model that was not trained by this tool."""

    def __init__(self, student: Student, clean: str | None = None):
        base = student.adapter_base
        if base is None:
            raise RecoverError(
                "The student's own weights are being trained, so switching adapters off would not restore the clean "
                "model. Load the teacher from its checkpoint."
            )
        if adapters.trains_biases(student.model):
            raise RecoverError(
                "The student's adapter trains biases of its base, so switching it off would not restore the clean "
                "model. Load the teacher from its checkpoint."
            )
        if clean is not None and not adapters.same_model(base, clean):
            raise RecoverError(
                f"The student's adapter sits on {base}, so switching it off would not restore {clean}. "
                "Load the teacher from its checkpoint."
            )
        if clean is None and (parent := checkpoint_metadata(base).get("parent")):
            raise RecoverError(
                f"The weights under the student's adapter ({base}) were themselves trained from {parent}, so switching "
                "it off would not restore the clean model. Say which model is the clean one, or load the teacher "
                "from its checkpoint."
            )
        self._student = student

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        model = self._student.model
        with adapters.preserve_adapter_state(model), model.disable_adapter():
            return Distribution.from_hidden(self._student.hidden(batch), self._student.head)


class AdapterTeacher(AsLargeAsStudent):
    """Another adapter on the student's own base, loaded beside the student's adapter and frozen."""

    def __init__(self, student: Student, reference: str):
        base = adapters.base_of(reference)
        if base is None:
            raise RecoverError(f"The checkpoint {reference} holds no adapter. Load it as a separate teacher.")
        if student.adapter_base is None or not adapters.same_model(base, student.adapter_base):
            raise RecoverError(
                f"The teacher's adapter sits on {base} and the student's on {student.adapter_base or 'nothing'}, so "
                "they cannot share its weights. Load the teacher from its checkpoint."
            )
        self._student = student
        self._name = f"teacher_{len(student.model.peft_config)}"
        adapters.check_weights(reference)
        if not adapters.can_load_beside(student.model, reference):
            raise RecoverError(
                f"The teacher's adapter {reference} is of another kind than the student's, or one of them trains "
                "biases or tokens of the base, so they cannot share it. Load the teacher from its checkpoint."
            )
        with adapters.preserve_adapter_state(student.model), adapters.loading(reference, base):
            adapters.load_beside(student.model, reference, self._name, trainable=False)
        if adapters.changes_head(student.model):
            raise adapters.head_changed(reference)
        disable_dropout(student.model)

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        model = self._student.model
        with adapters.preserve_adapter_state(model):
            model.base_model.set_adapter([self._name])
            return Distribution.from_hidden(self._student.hidden(batch), self._student.head)


class LiveTeacher(AsLargeAsStudent):
    """The student's own weights as they are now. They move with every step, so nothing holds the student in place."""

    def __init__(self, student: Student):
        self._student = student

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        device = self._student.device.type
        # torch 2.9 keeps weights that autocast cast under no_grad: the student would get no gradient through them.
        with torch.autocast(device, enabled=torch.is_autocast_enabled(device), cache_enabled=False):
            return Distribution.from_hidden(self._student.hidden(batch), self._student.head)


class EmaTeacher(AsLargeAsStudent):
    """The exponential moving average of the student's trained weights; the caller moves it between two steps.

    Weights that are not trained, such as those below an adapter, are shared with the student."""

    def __init__(self, student: Student, decay: float = EMA_DECAY):
        if not 0 <= decay < 1:
            raise RecoverError(f"The decay of the teacher's average must be at least 0 and below 1, not {decay:g}.")
        shared = {id(p): p for p in student.model.parameters() if not p.requires_grad}
        self._student, self.decay = student, decay
        self._trained = {name for name, p in student.model.named_parameters() if p.requires_grad}
        self._average = replace(student, model=copy.deepcopy(student.model, shared))
        self._average.model.requires_grad_(False)

    def move(self) -> None:
        """Move the average towards the student's weights. Call it once after each step."""
        current = dict(self._student.model.named_parameters())
        for name, average in self._weights().items():
            average.lerp_(current[name].detach(), 1 - self.decay)

    def save(self, path: Path) -> None:
        save_file({name: weights.contiguous() for name, weights in self._weights().items()}, path)

    def load(self, path: Path) -> None:
        saved = load_file(path)
        for name, average in self._weights().items():
            average.copy_(saved[name])

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        self._average.vocabulary = self._student.vocabulary
        return Distribution.from_hidden(self._average.hidden(batch), self._average.head)

    def _weights(self) -> dict[str, Tensor]:
        return {name: p for name, p in self._average.model.named_parameters() if name in self._trained}


def frozen_teachers(teacher: Teacher | None) -> list[FrozenTeacher]:
    """Those that are models of their own, of a teacher that may be made up of several."""
    if isinstance(teacher, InContext):
        return frozen_teachers(teacher.teacher)
    if isinstance(teacher, RouterTeacher):
        return [frozen for each in (teacher.default, *teacher.by_domain.values()) for frozen in frozen_teachers(each)]
    return [teacher] if isinstance(teacher, FrozenTeacher) else []


class RouterTeacher:
    """Uses `by_domain` for samples of those domains and `default` for all others; never both in one batch."""

    def __init__(self, default: Teacher, by_domain: Mapping[str, Teacher]):
        self.default, self.by_domain = default, dict(by_domain)

    def flops(self, samples: list[Sample]) -> float:
        return sum(teacher.flops(part) for teacher, part in self._routes(samples))

    def distribution(self, batch: Batch) -> TeacherLogprobs:
        ((teacher, _),) = self._routes(batch.samples)  # micro_batches keeps the domains apart
        return teacher.distribution(batch)

    def _routes(self, samples: Sequence[Sample]) -> list[tuple[Teacher, list[Sample]]]:
        """Return each teacher that has samples here, with these."""
        parts: dict[str | None, list[Sample]] = {}
        for sample in samples:
            parts.setdefault(sample.domain if sample.domain in self.by_domain else None, []).append(sample)
        return [(self.default if d is None else self.by_domain[d], part) for d, part in parts.items()]


class InContext:
    """Any teacher, judging the student's tokens behind the prompt that each row carries for it.

    Rows and targets keep their order, so the log-probs are those of the student's targets. What all rows of a batch
    begin with is read once; the FLOPs count it in every row."""

    def __init__(self, teacher: Teacher):
        self.teacher = teacher

    def flops(self, samples: list[Sample]) -> float:
        return self.teacher.flops([sample.for_teacher for sample in samples])

    def distribution(self, batch: Batch) -> TeacherLogprobs:
        if all(sample.teacher_prompt is None for sample in batch.samples):
            return self.teacher.distribution(batch)
        rows = [sample.for_teacher for sample in batch.samples]
        read = Batch.collate(rows, 0, batch.tokens.device)  # no token attends to padding
        return self.teacher.distribution(replace(read, shared=_shared_context(batch.samples)))


def _shared_context(samples: list[Sample]) -> int:
    """How many tokens all the teacher's prompts begin with; 0 where reading them once would save little, or where
    several processes, whose rows differ, must run the same passes."""
    if size() > 1:
        return 0
    # The last token of a prompt predicts the first target.
    shared = common_start([(sample.teacher_prompt or [])[:-1] for sample in samples])
    return shared if shared >= SHARED_CONTEXT and len(samples) > 1 else 0
