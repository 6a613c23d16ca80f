"""What the dashboard's pages may do in a project: notes, decisions, cancelling runs, and generating answers."""

import threading
import time
from collections.abc import Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path

import torch

from dashboard.actions import ActionError, Actions, ModelAnswer
from db import RecordError
from db.tables import Checkpoint, Decision, Study
from evals.downloads import public_ifeval
from evals.splits import oversampled_count
from evals.subject import Answer, Subject
from evals.suites import lab
from evals.suites.instruction_following import Prompt, judge, parse_prompt
from pipelines.gate import promotion
from pipelines.gate.promotion import current_user
from pipelines.project.project import Project
from recovery.errors import RecoverError, first_line

MAX_MODELS = 4  # in memory; on a GPU, whose memory a training may need, only one
MAX_NEW_TOKENS = 512


def dashboard_actions(project: Project) -> Actions:
    def add_note(text: str, user: str, *, cycle: int | None = None, checkpoint: int | None = None) -> None:
        project.tracker.note(project.id, text, user or current_user(), cycle=cycle, checkpoint=checkpoint)

    def decide(checkpoint: int, user: str, reason: str, decision: Decision) -> None:
        candidate = _checkpoint(project, checkpoint)
        try:
            if decision == "promoted":
                candidate = project.verify(candidate)
            promotion.decide(project, candidate, decision, reason, by=user)
        except RecoverError as error:
            raise ActionError(str(error)) from error

    return Actions(
        generate=Models(project).generate,
        cancel=project.tracker.request_cancel,
        decide=decide,
        add_note=add_note,
        shipped_studies=shipped_studies,
    )


@cache
def shipped_studies(folder: Path | None = None) -> list[Study]:
    """The studies that come with recover, with the results that come with it too, or those of the folder."""
    from studies.declaration import read_declaration, shipped
    from studies.entries import SHIPPED_RESULTS
    from studies.results_page import finished_studies

    rows: dict[str, list[Study]] = {name: [] for name in shipped()}
    for study, results in finished_studies(folder or SHIPPED_RESULTS):
        declaration = study.as_json()
        row = Study(name=study.name, size=study.size_name, hash=study.hash, declaration=declaration, results=results)
        rows[study.name].append(row)
    unfinished = {name: Study(name=name, declaration=read_declaration(name)[0].model_dump()) for name in rows}
    return [row for name, of_name in rows.items() for row in of_name or [unfinished[name]]]


class Models:
    """Checkpoints that answer prompts; the last few used stay in memory."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._subject = lru_cache(1 if torch.cuda.is_available() else MAX_MODELS)(_load)
        self._lock = threading.Lock()

    def generate(self, checkpoints: Sequence[int], prompt: str) -> list[ModelAnswer]:
        with self._lock:
            return [self._answer(checkpoint, prompt) for checkpoint in checkpoints]

    def _answer(self, id: int, prompt: str) -> ModelAnswer:
        checkpoint = _checkpoint(self._project, id)
        start_time = time.perf_counter()
        try:
            (answer,) = self._subject(self._project.locate(checkpoint).path).answer([prompt], MAX_NEW_TOKENS)
        except (RecoverError, RecordError, OSError, RuntimeError) as error:
            raise ActionError(f"The checkpoint {checkpoint.reference} cannot answer: {first_line(error)}") from error
        seconds = time.perf_counter() - start_time
        return ModelAnswer(checkpoint.reference, answer.text, seconds, self._verdicts(prompt, answer))

    def _verdicts(self, text: str, answer: Answer) -> list[tuple[str, bool]]:
        """Whether each instruction is followed, where the text is a prompt of an evaluation."""
        prompt = next((prompt for prompt in self._prompts if prompt.text.strip() == text.strip()), None)
        if prompt is None:
            return []
        verdicts = judge(prompt, answer).verdicts
        return list(zip(verdicts["instructions"], verdicts["strict"], strict=True))

    @cached_property
    def _prompts(self) -> list[Prompt]:
        asked = dict[str, int]()
        for evaluation in self._project.reader.evaluations(self._project.clean.id):
            if evaluation.task == "ifeval":
                counts = (score.n for score in evaluation.scores.values())
                asked[evaluation.data] = max([asked.get(evaluation.data, 0), *counts])
        documents = (public_ifeval() or []) if "public" in asked else []  # then they are downloaded
        prompts = [parse_prompt((f"public prompt {document['key']}", document)) for document in documents]
        for data, count in asked.items():
            if data in ("lab", "lab-natural"):
                prompts += lab.instruction_prompts(oversampled_count(count, "final"), natural=data == "lab-natural")
        return prompts


def _checkpoint(project: Project, id: int) -> Checkpoint:
    checkpoint = project.reader.checkpoint(id)
    if checkpoint is None or checkpoint.project_id != project.id:
        raise ActionError("There is no such checkpoint in this project. Reload the page.")
    return checkpoint


def _load(path: str) -> Subject:
    from pipelines.model_loading import load_frozen  # imports transformers, which takes seconds
    from recovery.engines.transformers import TransformersEngine

    student = load_frozen(path)
    return Subject(TransformersEngine(student), student.chat)
