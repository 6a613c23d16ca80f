"""What the dashboard is handed: the few things its pages may do beyond looking."""

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property

import torch

from dashboard.actions import ActionError, Actions, ModelAnswer
from db.errors import RecordError
from db.tracker import Decision
from evals.downloads import public_ifeval
from evals.subject import Answer as Said
from evals.subject import Subject
from evals.suites import lab
from evals.suites.instruction_following import Prompt, judge, parse_prompt
from pipelines import promotion as deciding
from pipelines.project.project import Project
from pipelines.promotion import current_user
from recovery.errors import RecoverError

MODELS_KEPT = 4  # on a GPU, whose memory a training may need, only the last one
LONGEST_ANSWER = 512
LAB_PROMPTS = 1000
"""As many as an evaluation is likely to have asked."""


def handed(project: Project) -> Actions:
    """Notes, decisions, stopping and asking, all on one project."""

    def note(text: str, user: str, *, cycle: int | None = None, checkpoint: int | None = None) -> None:
        project.tracker.note(project.id, text, user or current_user(), cycle=cycle, checkpoint=checkpoint)

    def decide(checkpoint: int, who: str, why: str, decision: Decision) -> None:
        found = project.reader.checkpoint(checkpoint)
        if found is None or found.project_id != project.id:
            raise ActionError("There is no such checkpoint in this project.")
        try:
            deciding.decide(project, found, decision, why, by=who)
        except RecoverError as error:
            raise ActionError(str(error)) from error

    def cancel(run: int) -> None:
        project.tracker.request_cancel(run)

    return Actions(
        generate=Models(project).generate,
        cancel=cancel,
        promote=lambda checkpoint, user, reason: decide(checkpoint, user, reason, "promoted"),
        reject=lambda checkpoint, user, reason: decide(checkpoint, user, reason, "rejected"),
        add_note=note,
    )


class Models:
    """The last few models that were asked, kept in memory."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._kept: OrderedDict[str, Subject] = OrderedDict()
        self._lock = threading.Lock()

    def generate(self, checkpoints: Sequence[int], prompt: str) -> list[ModelAnswer]:
        with self._lock:
            return [self._answer(checkpoint, prompt) for checkpoint in checkpoints]

    def _answer(self, id: int, prompt: str) -> ModelAnswer:
        checkpoint = self._project.reader.checkpoint(id)
        if checkpoint is None or checkpoint.project_id != self._project.id:
            raise ActionError("There is no such checkpoint in this project.")
        began = time.perf_counter()
        try:
            (said,) = self._subject(self._project.locate(checkpoint).path).answer([prompt], LONGEST_ANSWER)
        except (RecoverError, RecordError, OSError, RuntimeError) as error:
            raise ActionError(f"{checkpoint.reference} cannot be asked: {error}") from error
        return ModelAnswer(checkpoint.reference, said.text, time.perf_counter() - began, self._followed(prompt, said))

    def _followed(self, text: str, said: Said) -> list[tuple[str, bool]]:
        """The verdict on each instruction, where the prompt is one that the evaluations ask."""
        known = next((prompt for prompt in self._prompts if prompt.text.strip() == text.strip()), None)
        if known is None:
            return []
        verdicts = judge(known, said).verdicts
        return list(zip(verdicts["instructions"], verdicts["strict"], strict=True))

    @cached_property
    def _prompts(self) -> list[Prompt]:
        done = self._project.reader.evaluations(self._project.clean.id)
        asked_public = any(one.data == "public" for one in done)  # so they were fetched already
        public = (public_ifeval() or []) if asked_public else []
        return lab.instruction_prompts(LAB_PROMPTS) + [
            parse_prompt((f"public prompt {doc['key']}", doc)) for doc in public
        ]

    def _subject(self, path: str) -> Subject:
        from pipelines.models import load_frozen
        from recovery.engines.transformers import TransformersEngine

        kept = self._kept.pop(path, None)
        if kept is None:
            student = load_frozen(path)
            kept = Subject(TransformersEngine(student), student.chat)
        self._kept[path] = kept
        while len(self._kept) > (1 if torch.cuda.is_available() else MODELS_KEPT):
            self._kept.popitem(last=False)
        return kept
