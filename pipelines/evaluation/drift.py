"""How far a checkpoint is from the clean base: what it writes to the base's own prompts, in how many ways it still
answers, and the KL on the states of the new task. On record like every measurement, and measured once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from db.views import Checkpoint
from evals.drift.diversity import SAMPLES, prompt_diversity, question_diversity
from evals.drift.drift import MAX_NEW_TOKENS, measure_drift
from evals.drift.rollouts import BaseUnderAdapter, adapter_disabled, passage_samples, question_samples
from evals.measurement_keys import data_hash, measurement_key
from evals.results import Result
from evals.subject import Subject
from evals.suites.config import content_id, load_suites
from evals.suites.knowledge import read_questions
from evals.suites.measure import ifeval_prompts
from evals.suites.passage_recall import read_passages
from pipelines.documents.snapshot import load_snapshot, sample_passages
from pipelines.evaluation.results_store import on_record, put_on_record
from pipelines.log import log
from pipelines.models import load_frozen, open_engine
from pipelines.project.paths import relocate
from pipelines.project.project import Project
from pipelines.project.runs import recorded_run
from pipelines.synthetic.prompts import cached_prompts, write_prompts
from recovery.batch import Sample
from recovery.engines import Engine
from recovery.models.adapters import same_model
from recovery.models.chat import Chat
from recovery.models.students import Student, load_chat

PROMPTS, SEED = 128, 20_000  # a seed that no run asks its prompts with, unless somebody means it to
ITEMS = 64  # that are each answered several times
NEW_TASK = 200  # questions or passages


@dataclass(frozen=True)
class NewTask:
    """What was learned last: questions on it, or the documents themselves."""

    questions: Path | None = None
    passages: Path | None = None

    def rows(self, chat: Chat) -> list[Sample]:
        if self.questions:
            return question_samples(chat, read_questions(self.questions)[:NEW_TASK])
        return passage_samples(chat, read_passages(self.passages)[:NEW_TASK]) if self.passages else []


def new_task(project: Project, checkpoints: Sequence[Checkpoint], questions: Path | None = None) -> NewTask:
    """The questions given, else those (or the documents) of the last mid-training that made one of the checkpoints."""
    if questions:
        return NewTask(questions)
    line = [each for one in checkpoints for each in project.reader.lineage(one.id)]
    for made in sorted(line, key=lambda each: -each.id):
        run = project.reader.run(made.run_id) if made.role == "midtrained" and made.run_id else None
        if run is None:
            continue
        asked = relocate(project.home, Path(run.settings.get("questions") or ""))
        if asked.is_file():
            return NewTask(asked)
        corpus = load_snapshot(project.home, run.settings.get("corpus") or "", Path(), 0)
        return NewTask(passages=sample_passages(project.home, corpus)) if corpus else NewTask()
    return NewTask()


def drift_of(
    project: Project,
    checkpoint: Checkpoint,
    task: NewTask,
    *,
    ifeval_data: Path | None = None,
    engine: str = "transformers",
    again: bool = False,
) -> list[Result]:
    settings = {
        "prompts": PROMPTS,
        "seed": SEED,
        "items": ITEMS,
        "samples": SAMPLES,
        "max_new_tokens": MAX_NEW_TOKENS,
        "new_task": NEW_TASK,
        "named": {suite: content_id(named) for suite, named in load_suites(project.base).items()},
        "version": version("recover"),
    }
    files = (task.questions, task.passages, ifeval_data)
    data = "/".join([project.base_weights, *map(data_hash, files)])
    key = measurement_key(project.weights(checkpoint), "drift", data, settings)[:16]
    known = {} if again else on_record(project, checkpoint, {key})
    log.info(f"drift of {checkpoint.reference} " + ("was measured before" if known else "from the clean base"))
    if not known:
        told = settings | {"suite": "drift", "files": [str(file.resolve()) if file else None for file in files]}
        with recorded_run(project, "eval", None, told, SEED) as run:
            known = {key: _measured(project, checkpoint, task, ifeval_data, engine)}
            put_on_record(project, checkpoint, run, known)
    return known[key]


def _measured(
    project: Project, checkpoint: Checkpoint, task: NewTask, ifeval_data: Path | None, engine: str
) -> list[Result]:
    current, clean = _both(checkpoint.path, project.base)
    found = measure_drift(
        current,
        clean,
        _prompts(project, clean, engine),
        data="own prompts",
        open_engine=lambda student: _writing(student, engine),
        new_task=task.rows(clean.chat),
        max_new_tokens=MAX_NEW_TOKENS,
        seed=SEED,
    )
    return [found, *_diversity(project, current, task, ifeval_data, engine)]


def _both(path: str, base: str) -> tuple[Student, Student]:
    """The checkpoint and the clean base, in the same memory where one is an adapter on the other."""
    current = load_frozen(path)
    if current.adapter_base and same_model(current.adapter_base, base):
        return current, BaseUnderAdapter(current.model, load_chat(base), base)
    return current, load_frozen(base)


@contextmanager
def _writing(student: Student, engine: str) -> Iterator[Engine]:
    """vLLM cannot leave an adapter out, so what lies beneath one is loaded for it alone, for as long as it writes."""
    apart = engine == "vllm" and isinstance(student, BaseUnderAdapter)
    with open_engine(load_frozen(student.path) if apart else student, engine) as writes:
        yield writes


def _diversity(
    project: Project, current: Student, task: NewTask, ifeval_data: Path | None, engine: str
) -> list[Result]:
    """Of instructions where behaviour is measured by them, else of the new task's questions, if there are any."""
    asked = ifeval_prompts(load_suites(project.base), ifeval_data, ITEMS)
    if asked is None and task.questions is None:
        return []
    with open_engine(current, engine) as writes:
        subject = Subject(writes, current.chat)
        if asked is not None:
            prompts, data = asked
            return [prompt_diversity(subject, prompts, data=data)]
        assert task.questions is not None
        return [question_diversity(subject, read_questions(task.questions)[:ITEMS], data=task.questions.name)]


def _prompts(project: Project, clean: Student, engine: str) -> list[str]:
    def write() -> list[str]:
        with adapter_disabled(clean), _writing(clean, engine) as writes:
            return write_prompts(writes, clean.chat, PROMPTS, SEED)

    return cached_prompts(project.home / "cache", project.base_weights, PROMPTS, SEED, write)
