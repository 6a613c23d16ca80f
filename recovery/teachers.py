"""Teachers: frozen models that score the student's tokens. Nothing in this module can be trained.

`FrozenTeacher` is a separate model. `AdapterOffTeacher` is the clean base inside the student: its weights with the
adapters off, without a second copy in memory. `AdapterTeacher` is another adapter on those weights. No such teacher
scores with the student's trained weights, so a student cannot be distilled from itself by accident.

`InContext` has any teacher read the prompt that a row carries for it (`teacher_prompt`) instead of the student's, such
as the same question with its solution. What a teacher reads and whose weights it has are separate choices.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Protocol

import torch
from torch import Tensor

from recovery.distributed import size
from recovery.errors import RecoverError
from recovery.losses.chunked_loss import Head
from recovery.losses.stop_events import is_in, merge_stops
from recovery.models.adapters import base_of, check_head_unchanged, preserve_adapter_state, same_model
from recovery.models.chat_template import Chat
from recovery.models.model_families import disable_dropout
from recovery.models.students import Student, checkpoint_metadata, hidden_states, load_student
from recovery.samples import Batch, Sample

SHARED_CONTEXT = 64  # tokens; a shorter one is read in every row
Part = slice | Tensor  # selects some of the targets


class TeacherLogprobs(Protocol):
    """A teacher's next-token log-probs at each target of a batch, computed for one chunk of targets at a time."""

    def logprobs(self, part: Part) -> Tensor:
        """Return the log-probs of the whole vocabulary [positions, vocabulary]."""
        ...

    def compare(self, student: Tensor, part: Part, stops: Sequence[int] = ()) -> tuple[Tensor, Tensor]:
        """Return the student's log-probs [positions, vocabulary] and the teacher's, both over the same events: the
        vocabulary, or the tokens that the teacher lists and a bucket for all others. All of `stops` are one event."""
        ...

    def at_tokens(self, events: Tensor, tokens: Tensor, part: Part, stops: Sequence[int] = ()) -> Tensor:
        """Return the log-prob of the event that each position's token belongs to, among those of `compare`."""
        ...

    def stopping(self, events: Tensor, part: Part, stops: Sequence[int]) -> Tensor:
        """Return the probability of `stops` at each position, among the events of `compare`."""
        ...

    def likeliest(self, part: Part, count: int) -> tuple[Tensor, Tensor]:
        """Return the likeliest tokens [positions, count] and their log-probs, likeliest first."""
        ...


class OverVocabulary:
    """What follows from the log-probs of the whole vocabulary."""

    def logprobs(self, part: Part) -> Tensor:
        raise NotImplementedError

    def compare(self, student: Tensor, part: Part, stops: Sequence[int] = ()) -> tuple[Tensor, Tensor]:
        return merge_stops(student, stops), merge_stops(self.logprobs(part), stops)

    def at_tokens(self, events: Tensor, tokens: Tensor, part: Part, stops: Sequence[int] = ()) -> Tensor:
        columns = tokens.masked_fill(is_in(tokens, stops), stops[0]) if stops else tokens
        return events.gather(-1, columns[:, None]).squeeze(-1)

    def stopping(self, events: Tensor, part: Part, stops: Sequence[int]) -> Tensor:
        return events[:, list(stops)].exp().sum(-1)

    def likeliest(self, part: Part, count: int) -> tuple[Tensor, Tensor]:
        return likeliest(self.logprobs(part), count)


def likeliest(logprobs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    top = logprobs.topk(min(count, logprobs.shape[-1]))
    return top.indices, top.values


@dataclass(frozen=True)
class Distribution(OverVocabulary):
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


class FrozenTeacher:
    """A checkpoint loaded as a separate model."""

    def __init__(self, reference: str, *, dtype: torch.dtype = torch.float32, device: str = "cpu"):
        self._model = load_student(reference, frozen=True, dtype=dtype, device=device)
        self.reference = reference
        self.chat = self._model.chat
        self._student: Student | None = None
        self._tokens: int | None = None  # how many it has, if the student has more

    @property
    def model(self) -> Student:
        """For an engine that generates with it."""
        return self._model

    @property
    def causal(self) -> Any:
        return self._model.causal

    @property
    def head(self) -> Head:
        if self._student is not None:
            self._model.vocabulary = self._student.vocabulary
        return self._model.head

    def flops(self, samples: list[Sample]) -> float:
        return forward_flops(self._model, samples)

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        if self._tokens is not None and self._student is not None:
            check_tokens((sample.tokens for sample in batch.samples), self._tokens, self._student.chat)
            batch = replace(batch, tokens=batch.tokens.clamp(max=self._tokens - 1))  # of the padding
        return Distribution.from_hidden(self._model.hidden(batch), self.head)

    def bind_student(self, student: Student) -> None:
        """Check that the tokenizers agree, and agree on the vocabulary if the heads are padded to different sizes, or
        the student has tokens that the teacher lacks: the student uses the fewest rows of all its teachers, and each
        teacher reads that number at every batch, since a teacher bound later may lower it."""
        rows = [len(head.weight) for head in (student.head, Head.from_model(self._model.causal))]
        if added_tokens(student.chat, self.chat):
            self._tokens = self.chat.token_rows
            rows.append(self._tokens)
        check_same_tokenizer(student.chat, self.chat)
        if len(set(rows)) > 1:
            student.vocabulary = min(rows)
        self._student = student


class AdapterOffTeacher:
    """The student's base weights with its adapters off; training does not change them.

    If `clean` is given, the base must be that model. Otherwise it must be a model that was not trained by this tool."""

    def __init__(self, student: Student, clean: str | None = None):
        base = student.adapter_base
        if base is None:
            raise RecoverError(
                "The student's own weights are being trained, so switching adapters off would not restore the clean "
                "model. Load the teacher from its checkpoint."
            )
        if clean is not None and not same_model(base, clean):
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

    @property
    def head(self) -> Head:
        return self._student.head

    def flops(self, samples: list[Sample]) -> float:
        return forward_flops(self._student, samples)

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        model = self._student.model
        with preserve_adapter_state(model), model.disable_adapter():
            return Distribution.from_hidden(hidden_states(self._student.causal, batch), self.head)


class AdapterTeacher:
    """Another adapter on the student's own base, loaded beside the student's adapter and frozen."""

    def __init__(self, student: Student, reference: str):
        base = base_of(reference)
        if base is None:
            raise RecoverError(f"The checkpoint {reference} holds no adapter. Load it as a separate teacher.")
        if student.adapter_base is None or not same_model(base, student.adapter_base):
            raise RecoverError(
                f"The teacher's adapter sits on {base} and the student's on {student.adapter_base or 'nothing'}, so "
                "they cannot share its weights. Load the teacher from its checkpoint."
            )
        self._student, self.reference = student, reference
        self._name = f"teacher_{len(student.model.peft_config)}"
        with preserve_adapter_state(student.model):
            student.model.load_adapter(reference, self._name, is_trainable=False, use_safetensors=True)
        check_head_unchanged(student.model, reference)
        disable_dropout(student.model)

    @property
    def head(self) -> Head:
        return self._student.head

    def flops(self, samples: list[Sample]) -> float:
        return forward_flops(self._student, samples)

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        model = self._student.model
        with preserve_adapter_state(model):
            model.base_model.set_adapter([self._name])
            return Distribution.from_hidden(hidden_states(self._student.causal, batch), self.head)


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
    prompts = [sample.teacher_prompt or [] for sample in samples]
    columns = zip(*(prompt[:-1] for prompt in prompts), strict=False)  # the last one predicts the first target
    shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    return shared if shared >= SHARED_CONTEXT and len(samples) > 1 else 0


def forward_flops(student: Student, samples: list[Sample]) -> float:
    return 2.0 * student.parameters * sum(len(s.tokens) for s in samples)


def added_tokens(student: Chat, teacher: Chat) -> int:
    """How many tokens the student has behind all of the teacher's."""
    size = teacher.token_rows
    return sum(id >= size for id in student.tokenizer.get_vocab().values())


def check_tokens(rows: Iterable[Sequence[int]], vocabulary: int, student: Chat) -> None:
    """Raise if a row that a teacher is to read holds a token that only the student has."""
    last = max((token for row in rows for token in row), default=0)
    if last >= vocabulary:
        raise RecoverError(
            f"The teacher has no token {student.tokenizer.convert_ids_to_tokens(last)!r}, which the student has. Leave "
            "out prompts and replies with it, or name a teacher that has it."
        )


def check_same_tokenizer(student: Chat, teacher: Chat) -> None:
    """Raise unless both map the same chat to the same ids; otherwise their distributions are not comparable."""
    check_same_vocabulary(student, teacher)
    if not same_chat_template(student, teacher):
        raise RecoverError(
            "Teacher and student render the same chat to different tokens (their chat templates differ). "
            "Give the student the teacher's chat template."
        )


def check_same_vocabulary(student: Chat, teacher: Chat) -> None:
    """Raise unless all of the teacher's tokens have the same ids in the student's tokenizer.

    The student may have more tokens behind them, as after a fine-tune that added some."""
    ours, theirs = student.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    size = 1 + max(theirs.values())
    common = {token: id for token, id in ours.items() if id < size}
    if common != theirs:
        differing = min(token for token, _ in common.items() ^ theirs.items())
        raise RecoverError(
            f"Teacher and student have different tokenizers (token {differing!r} differs, {len(theirs)} "
            f"against {len(ours)} tokens). Choose a teacher of the same model family."
        )


def same_chat_template(first: Chat, second: Chat) -> bool:
    """Whether both render a short chat to the same tokens."""
    probe: list[dict[str, Any]] = [{"role": "user", "content": "Hello?"}]
    return first.prompt(probe) == second.prompt(probe)
