"""The drift of a checkpoint from the clean model: the KL divergence on its answers to the base's own prompts and on the
new task, and how diverse its answers still are. Stored in the record like every measurement, and reused."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from db.tables import Checkpoint
from evals.drift import (
    DRIFT_TOKENS,
    SAMPLES,
    Clean,
    measure_diversity,
    measure_drift,
    passage_samples,
    question_samples,
)
from evals.measurement_keys import data_hash, measurement_key
from evals.results import Result
from evals.subject import Subject
from evals.suites.config import content_id, load_suites
from evals.suites.knowledge import read_questions
from evals.suites.suite_measurement import ifeval_prompts, is_public_ifeval_available
from evals.suites.training_texts import read_passages
from pipelines.documents.corpus import load_snapshots, sample_passages
from pipelines.evaluation.checkpoint_measurement import store_results, stored_results, weights_and_engine
from pipelines.evaluation.evaluation_plan import lineage_questions, midtrainings
from pipelines.log import log
from pipelines.model_loading import device, frozen_dtype, load_frozen, open_engine, open_subject
from pipelines.project.project import Project
from pipelines.project.runs import recorded_run
from pipelines.settings.sources import DEFAULT_ENGINE, EngineName
from pipelines.synthetic.prompts import cached_prompts
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat
from recovery.samples import Sample
from recovery.teachers import AdapterOffTeacher, FrozenTeacher, can_switch_to

PROMPTS, SEED = 128, 20_000  # a seed that no run uses for its prompts, unless someone sets it
ITEMS = 64  # prompts for diversity, each answered several times
NEW_TASK = 200  # questions or passages


@dataclass(frozen=True)
class NewTask:
    """What was trained last: questions about it, or else passages of its documents."""

    questions: Path | None = None
    passages: Path | None = None

    def rows(self, chat: Chat) -> list[Sample]:
        if self.questions:
            return question_samples(chat, read_questions(self.questions)[:NEW_TASK])
        return passage_samples(chat, read_passages(self.passages)[:NEW_TASK]) if self.passages else []


def new_task(project: Project, checkpoints: Sequence[Checkpoint], questions: Path | None = None) -> NewTask:
    """The given questions, else those (or the documents) of the last mid-training in the checkpoints' lineages."""
    if file := questions or lineage_questions(project, checkpoints):
        return NewTask(file)
    run = next(midtrainings(project, checkpoints), None)
    corpora = load_snapshots(project.home, [run.inputs.corpus or ""]) if run else []
    return NewTask(passages=sample_passages(project.home, corpora[0])) if corpora else NewTask()


def checkpoint_drift(
    project: Project,
    checkpoint: Checkpoint,
    task: NewTask,
    *,
    ifeval_data: Path | None = None,
    engine: EngineName = DEFAULT_ENGINE,
    rerun: bool = False,
) -> list[Result]:
    """The stored drift and diversity of a checkpoint; measured and stored if missing (or with `rerun`)."""
    suites = load_suites(project.base)
    settings = {
        "prompts": PROMPTS,
        "seed": SEED,
        "items": ITEMS,
        "samples": SAMPLES,
        "max_new_tokens": DRIFT_TOKENS,
        "new_task": NEW_TASK,
        "named": {suite: content_id(tasks) for suite, tasks in suites.items()},
        "public": None if ifeval_data else is_public_ifeval_available(suites),
        "version": version("recover"),
    }
    files = (task.questions, task.passages, ifeval_data)
    data = "/".join([project.base_weights_id, *map(data_hash, files)])
    key = measurement_key(weights_and_engine(project, checkpoint, engine), "drift", data, settings)[:16]
    by_key = {} if rerun else stored_results(project, checkpoint, {key})
    if by_key:
        log.info(f"Reusing the stored drift of {checkpoint.reference}")
        return by_key[key]
    log.info(f"Measuring the drift of {checkpoint.reference} from the clean model")
    run_settings = settings | {"suite": "drift", "files": [str(file.resolve()) if file else None for file in files]}
    with recorded_run(project, "eval", None, run_settings, SEED) as run:
        results = _measure(project, checkpoint, task, ifeval_data, engine)
        store_results(project, checkpoint, run, key, results)
    return results


def _measure(
    project: Project, checkpoint: Checkpoint, task: NewTask, ifeval_data: Path | None, engine: EngineName
) -> list[Result]:
    open_base = partial(open_subject, project.base, engine)
    prompts = cached_prompts(project.cache, project.base_weights_id, PROMPTS, SEED, open_base)
    current, base = load_frozen(checkpoint.path), project.base
    clean: Clean
    if can_switch_to(current, base):  # then they share memory
        clean = AdapterOffTeacher(current, base)
    else:
        clean = FrozenTeacher(base, dtype=frozen_dtype(base), device=device())
    new_rows = task.rows(load_chat(base))
    with open_engine(current, engine) as opened:
        drift = measure_drift(current, clean, opened, prompts, data="own prompts", new_task=new_rows, seed=SEED)
        subject = Subject(opened, current.chat)
        return [drift, *_diversity(project, subject, task, ifeval_data)]


def _diversity(project: Project, subject: Subject, task: NewTask, ifeval_data: Path | None) -> list[Result]:
    """On the instructions that behaviour is measured by, else on the questions of the new task, if there are any."""
    if (instructions := ifeval_prompts(load_suites(project.base), ifeval_data, ITEMS)) is not None:
        prompts, data = instructions
        return [measure_diversity(subject, prompts, data=data)]
    if task.questions is None:
        return []
    return [measure_diversity(subject, read_questions(task.questions)[:ITEMS], data=task.questions.name)]
