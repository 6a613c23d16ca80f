"""Who speaks about the student's states. A teacher is frozen by type: nothing here can be trained.

`FrozenTeacher` is a model of its own. `AdapterOffTeacher` is the clean base inside the student: its own weights with
the adapters off, no second copy in memory; `AdapterTeacher` is another adapter on those weights. Distilling from the
student itself by accident cannot be written.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from recovery.batch import Batch, Sample
from recovery.errors import RecoverError
from recovery.losses.chunked_loss import Head, token_logprobs
from recovery.models.adapters import base_of, leaves_the_head, same_model, undisturbed
from recovery.models.chat import Chat
from recovery.models.students import Student, describe, hidden_states, load_student, without_dropout

Part = slice | Tensor  # some of the states


class TeacherLogprobs(Protocol):
    """What a teacher would say next at each target of a batch, told a chunk of states at a time."""

    def logprobs(self, part: Part) -> Tensor: ...

    def logprobs_of(self, part: Part, tokens: Tensor) -> Tensor:
        """Of some tokens a state [positions, k]: all that a teacher who is asked over a network need tell."""
        ...

    def of_tokens(self, tokens: Tensor) -> Tensor:
        """Of one token at every state."""
        ...


@dataclass(frozen=True)
class Distribution:
    """A teacher's next-token distribution at each state, kept as hidden states: logits come chunk by chunk."""

    hidden: Tensor
    head: Head

    @classmethod
    def of(cls, hidden: Tensor, head: Head) -> "Distribution":
        """In the precision the student's own logits are computed in, or the two would differ where they agree.

        So is the head, once: it is far larger than a chunk of states, each of which would cast it anew."""
        kind = hidden.device.type
        now = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        return cls(hidden.to(now), replace(head, weight=head.weight.detach().to(now)))

    def logprobs(self, part: Part) -> Tensor:
        return torch.log_softmax(self.head.logits(self.hidden[part]), dim=-1)

    def logprobs_of(self, part: Part, tokens: Tensor) -> Tensor:
        return self.logprobs(part).gather(-1, tokens)

    def of_tokens(self, tokens: Tensor) -> Tensor:
        return token_logprobs(self.hidden, self.head, tokens)


class Teacher(Protocol):
    def flops(self, sequences: list[Sample]) -> float:
        """Of reading these rows once: the usual 2 × parameters a token."""
        ...

    def distribution(self, batch: Batch) -> TeacherLogprobs: ...


class FrozenTeacher:
    """A checkpoint of its own, loaded for this and never trained."""

    def __init__(self, reference: str, *, dtype: torch.dtype = torch.float32, device: str = "cpu"):
        self._student = load_student(reference, frozen=True, dtype=dtype, device=device)
        self.reference = reference
        self.chat = self._student.chat
        self._hearer: Student | None = None

    def flops(self, sequences: list[Sample]) -> float:
        return _of_one_reading(self._student, sequences)

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        if self._hearer is not None:
            self._student.vocabulary = self._hearer.vocabulary
        return Distribution.of(self._student.hidden(batch), self._student.head)

    def speak_to(self, student: Student) -> None:
        """Refuse a student of another language; agree on the rows that count where heads are padded unlike.

        The student keeps the fewest rows of all who speak to it, and each of them asks it anew: who comes later may
        have fewer still."""
        check_same_language(student.chat, self.chat)
        rows = [len(head.weight) for head in (student.head, Head.of(self._student.causal))]
        if rows[0] != rows[1]:
            student.vocabulary = min(rows)
        self._hearer = student


class AdapterOffTeacher:
    """The weights under the student's adapters, which training leaves as they were.

    Whether those are the clean model is checked against `clean`; without it, they must not have been trained here."""

    def __init__(self, student: Student, clean: str | None = None):
        base = student.adapter_base
        if base is None:
            raise RecoverError(
                "the student's own weights are being trained, so switching adapters off would not give back "
                "the clean model; load the teacher from its checkpoint"
            )
        if clean is not None and not same_model(base, clean):
            raise RecoverError(
                f"the student's adapter sits on {base}, so switching it off would not give back {clean}; "
                "load the teacher from its checkpoint"
            )
        if clean is None and (parent := describe(base).get("parent")):
            raise RecoverError(
                f"the weights under the student's adapter ({base}) were themselves trained from {parent}, so switching "
                "it off would not give back the clean model; say which model is the clean one, or load the teacher "
                "from its checkpoint"
            )
        self._student = student

    def flops(self, sequences: list[Sample]) -> float:
        return _of_one_reading(self._student, sequences)

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        model = self._student.model
        with undisturbed(model), model.disable_adapter():
            return Distribution.of(hidden_states(self._student.causal, batch), self._student.head)


class AdapterTeacher:
    """Another adapter on the student's own base, loaded beside the student's and never trained."""

    def __init__(self, student: Student, reference: str):
        base = base_of(reference)
        if base is None:
            raise RecoverError(f"{reference} holds no adapter; load it as a teacher of its own")
        if student.adapter_base is None or not same_model(base, student.adapter_base):
            raise RecoverError(
                f"the teacher's adapter sits on {base} and the student's on {student.adapter_base or 'nothing'}, so "
                "they cannot share its weights; load the teacher from its checkpoint"
            )
        self._student, self.reference = student, reference
        self._name = f"teacher_{len(student.model.peft_config)}"
        with undisturbed(student.model):
            student.model.load_adapter(reference, self._name, is_trainable=False, use_safetensors=True)
        leaves_the_head(student.model, reference)
        without_dropout(student.model)

    def flops(self, sequences: list[Sample]) -> float:
        return _of_one_reading(self._student, sequences)

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution:
        model = self._student.model
        with undisturbed(model):
            model.base_model.set_adapter([self._name])
            return Distribution.of(hidden_states(self._student.causal, batch), self._student.head)


def _of_one_reading(student: Student, sequences: list[Sample]) -> float:
    return 2.0 * student.parameters * sum(len(s.tokens) for s in sequences)


def check_same_language(student: Chat, teacher: Chat) -> None:
    """Teacher and student must read the same ids in the same places, or their distributions do not compare."""
    ours, theirs = student.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    if ours != theirs:
        differing = next(iter(ours.items() ^ theirs.items()))[0]
        raise RecoverError(
            f"teacher and student have different tokenizers (token {differing!r} differs, {len(theirs)} "
            f"against {len(ours)} tokens); choose a teacher of the same model family"
        )
    probe: list[dict[str, Any]] = [{"role": "user", "content": "Hello?"}]
    if student.prompt(probe) != teacher.prompt(probe):
        raise RecoverError(
            "teacher and student render the same chat to different tokens (their chat templates differ); "
            "give the student the teacher's chat template"
        )
