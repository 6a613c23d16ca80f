"""Who restores the behaviour: one teacher for all prompts, or each prompt's own.

A router asks the clean base how to behave, and the checkpoint that was last promoted about the documents of earlier
cycles, of which the clean base knows nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from db.views import Checkpoint
from pipelines.synthetic.prefixes import EARLIER_DOMAIN, as_prefix_prompts
from pipelines.synthetic.prompts import as_prompts
from recovery.batch import Sample
from recovery.models.adapters import base_of, same_model
from recovery.models.chat import Chat
from recovery.models.students import Student
from recovery.states import Prompt
from recovery.teacher_router import RouterTeacher
from recovery.teachers import AdapterOffTeacher, AdapterTeacher, FrozenTeacher, Teacher

ROUTER = "router"  # what `--teacher` is told
Writes = Callable[[str, list[Prompt]], list[Sample]]  # the answers of the model at a path


@dataclass(frozen=True)
class Teachers:
    chosen: Checkpoint
    promoted: Checkpoint | None = None  # who is asked about what earlier cycles taught
    openings: tuple[str, ...] = ()

    @property
    def in_words(self) -> str:
        if self.promoted is None:
            return self.chosen.reference
        return f"{self.chosen.reference} (and {self.promoted.reference} for openings of earlier documents)"

    def prompts(self, texts: list[str], chat: Chat, seed: int) -> list[Prompt]:
        asked = [*as_prompts(texts, chat), *as_prefix_prompts(self.openings, chat)]
        if self.openings:  # any first so many of them are a fair sample
            Random(seed).shuffle(asked)
        return asked

    def judging(self, student: Student, device: str) -> Teacher:
        clean = _loaded(student, self.chosen.path, device)
        if self.promoted is None:
            return clean
        return RouterTeacher(clean, {EARLIER_DOMAIN: _loaded(student, self.promoted.path, device)})

    def answering(self, prompts: list[Prompt], write: Writes) -> list[Sample]:
        """Their own answers, each prompt's by its own teacher; one model is in memory at a time."""
        written: dict[int, Sample] = {}
        for path, earlier in ((self.chosen.path, False), (self.promoted.path if self.promoted else "", True)):
            places = [i for i, prompt in enumerate(prompts) if (prompt.domain == EARLIER_DOMAIN) is earlier]
            if places:
                written |= zip(places, write(path, [prompts[i] for i in places]), strict=True)
        return [written[i] for i in range(len(prompts))]


def _loaded(student: Student, path: str, device: str) -> Teacher:
    """Within the student's own weights where it is those with other adapters or none, else a checkpoint of its own."""
    below, own = student.adapter_base, base_of(path)
    if below and same_model(below, path):
        return AdapterOffTeacher(student, path)
    if below and own and same_model(below, own):
        return AdapterTeacher(student, path)
    loaded = FrozenTeacher(path, device=device)
    loaded.bind_student(student)
    return loaded
