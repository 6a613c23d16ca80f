"""Teachers of a stage: one for all rows, or several, of which each row has one by its domain.

With `--teacher router` the clean base says how to behave, and the last promoted checkpoint what the documents of
earlier cycles say, which the clean base has never read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from db.tables import Checkpoint
from pipelines.log import log
from pipelines.model_loading import device, frozen_dtype, load_trained
from pipelines.synthetic.passage_prompts import EARLIER_DOMAIN, as_prefix_prompts
from pipelines.synthetic.prompts import ChatPrompt
from pipelines.teacher_choice import Itself, Served
from recovery.engines.served_model import Probe
from recovery.errors import RecoverError
from recovery.models.adapters import Adapter, base_of, preserve_adapter_state, same_model, saved_biases, trains_biases
from recovery.models.chat_template import Chat, added_tokens
from recovery.models.students import Student, load_chat, load_student
from recovery.recipes import Recipe, signal_of
from recovery.samples import Sample
from recovery.server_teacher import ServerTeacher
from recovery.signals import Signal
from recovery.states import Prompt
from recovery.teachers import (
    AdapterOffTeacher,
    AdapterTeacher,
    FrozenTeacher,
    LiveTeacher,
    RouterTeacher,
    Teacher,
    can_switch_to,
)

SampleAnswers = Callable[[str, list[Prompt]], list[Sample]]  # by the model at a path


@dataclass(frozen=True)
class Teachers:
    main: Checkpoint
    by_domain: Mapping[str, Checkpoint] = field(default_factory=dict)  # all other rows are the main teacher's
    prefixes: tuple[str, ...] = ()  # of documents of earlier cycles, used as prompts
    instead: Itself | Served | None = None  # the student, which begins as `main`, or servers of it

    def __str__(self) -> str:
        match self.instead:
            case Itself(weights):
                return f"{'the average' if weights == 'ema' else 'the current weights'} of {self.main.reference}"
            case Served(addresses):
                return f"{self.main.reference} at {addresses}"
        others = [
            f"{source.reference} for {'openings of earlier documents' if domain == EARLIER_DOMAIN else domain}"
            for domain, source in self.by_domain.items()
        ]
        return f"{self.main.reference} (and {', '.join(others)})" if others else self.main.reference

    def prompts(self, given: Sequence[ChatPrompt], chat: Chat, seed: int, template: str = "") -> list[Prompt]:
        domains = [prompt.domain if prompt.domain in self.by_domain else None for prompt in given]
        tokenized = [prompt.tokenized(chat, template) for prompt in given]
        prompts = [replace(prompt, domain=domain) for prompt, domain in zip(tokenized, domains, strict=True)]
        prompts += as_prefix_prompts(self.prefixes, chat)
        if self.prefixes:  # so that any first part of them is a fair sample
            Random(seed).shuffle(prompts)
        return prompts

    def readable(self, prompts: Sequence[Prompt], chat: Chat) -> list[Prompt]:
        """The prompts without those that hold a token which only the student has; raise if none is left."""
        left_out = set[int]()
        for path, of_teacher in self.by_prompt(prompts).items() if self.instead is None else ():
            teacher = load_chat(path)
            if added_tokens(chat, teacher):
                rows = teacher.token_rows
                left_out |= {i for i in of_teacher if max(prompts[i].teacher_prompt or prompts[i].tokens) >= rows}
        left = [prompt for i, prompt in enumerate(prompts) if i not in left_out]
        if left_out and not left:
            raise RecoverError("All prompts hold tokens that the teacher lacks. Name other --prompts.")
        if left_out:
            log.warning(f"{len(left_out):,} prompts hold tokens that the teacher lacks, and are left out")
        return left

    def load(self, student: Student, *, bf16: bool = False) -> Teacher:
        match self.instead:
            case Itself():
                return LiveTeacher(student)
            case Served(addresses):
                return _served(student, self.main.path, addresses)
        loaded = {
            path: _load(student, path, bf16)
            for path in dict.fromkeys([self.main.path, *(source.path for source in self.by_domain.values())])
        }
        main = loaded[self.main.path]
        if not self.by_domain:
            return main
        return RouterTeacher(main, {domain: loaded[source.path] for domain, source in self.by_domain.items()})

    def answers(self, prompts: list[Prompt], sample: SampleAnswers) -> list[Sample]:
        """Each prompt answered by its own teacher, with one model in memory at a time."""
        rows: dict[int, Sample] = {}
        for path, of_teacher in self.by_prompt(prompts).items():
            rows |= zip(of_teacher, sample(path, [prompts[i] for i in of_teacher]), strict=True)
        return [rows[i] for i in range(len(prompts))]

    def by_prompt(self, prompts: Sequence[Prompt]) -> dict[str, list[int]]:
        indices: dict[str, list[int]] = {}
        for i, prompt in enumerate(prompts):
            indices.setdefault(self.by_domain.get(prompt.domain or "", self.main).path, []).append(i)
        return indices


@dataclass(frozen=True)
class TrainingSource:
    """How the followers of a training on several processes load its student, and what that learns from."""

    start: str
    adapter: Adapter | None
    bf16: bool
    recipe: Recipe
    teachers: Teachers | None = None
    separator: int | None = None  # between the documents that it reads; None: as its chat has it

    def load(self) -> tuple[Student, Signal]:
        student = load_trained(self.start, self.adapter, bf16=self.bf16)
        if self.separator is not None:
            student.chat = student.chat.with_separator(self.separator)
        teacher = self.teachers.load(student, bf16=self.bf16) if self.teachers else None
        return student, signal_of(self.recipe, teacher, reward=_of_leader)


def _of_leader(sample: Sample) -> float:
    raise AssertionError("The leader computes rewards.")


def _served(student: Student, path: str, servers: str) -> ServerTeacher:
    """What the servers must serve is read here once: below the student's adapter, else from its own weights."""
    probe = Probe(student.chat)
    if can_switch_to(student, path):
        with preserve_adapter_state(student.model), student.model.disable_adapter():
            expected = probe.logprobs(student)
    else:
        expected = probe.logprobs(load_student(path, frozen=True))
    return ServerTeacher(student, servers, path, expected)


def _load(student: Student, path: str, bf16: bool) -> FrozenTeacher | AdapterOffTeacher | AdapterTeacher:
    """Shares the student's weights where only the adapter differs; else a model of its own."""
    below, base = student.adapter_base, base_of(path)
    if can_switch_to(student, path):
        return AdapterOffTeacher(student, path)
    shares_base = below and base and same_model(below, base)
    if shares_base and not trains_biases(student.model) and not saved_biases(path):
        return AdapterTeacher(student, path)
    teacher = FrozenTeacher(path, dtype=frozen_dtype(path, bf16), device=device())
    teacher.bind_student(student)
    return teacher
