"""From the command line of `check` and `repair` to a job: compare the files of both models, and say what to measure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evals.suites.config import load_suites
from pipelines.documents import read_corpus
from pipelines.documents.snapshot import CorpusSnapshot, sample_passages, save_snapshot
from pipelines.documents.training_file import read_training_file
from pipelines.evaluation.evaluation_plan import EvalPlan
from pipelines.jobs.job import Job, store_prompts, store_questions
from pipelines.log import log
from pipelines.prepare_job import announce_settings, check_files, check_model_fits
from pipelines.project.checkpoints import weights_hash
from pipelines.project.project import Project
from pipelines.request import Request
from pipelines.storage.atomic_files import JsonLines
from pipelines.storage.content_cache import content_hash
from pipelines.training.recipe_inputs import check_processes
from recovery.errors import RecoverError
from recovery.fine_tunes import FineTune, inspect_fine_tune
from recovery.models.chat_template import Message
from recovery.models.students import load_chat

MAX_CONVERSATIONS = 300  # of a training file, whose answers are scored
OF_TOKENIZER = ("token", "vocab", "merges", "special_", "chat_template", "added_")  # beginnings of file names


@dataclass(frozen=True)
class Prepared:
    job: Job
    about: FineTune
    own_template: str | None = None  # path of the model with its own chat template, where that is not the base's


def prepare_repair(project: Project, request: Request, *, trains: bool = True) -> Prepared:
    """A job that judges the student by the base, and repairs it if it `trains`; not saved yet."""
    assert request.student is not None
    path = project.path_of(request.student)
    about = inspect_fine_tune(path, project.base)
    settings, _, given = announce_settings(project, request)
    check_processes(request.processes or 1, settings)
    check_model_fits(project, request, settings, path)
    check_files(project, request)
    for note in about.notes(project.base_name):
        log.warning(note)
    own = path if about.other_template else None
    student = project.resolve(_with_base_template(project.home, path, project.base) if own else request.student)
    conversations = read_training_file(request.docs) if request.docs else []
    corpus = save_snapshot(project.home, read_corpus(request.docs)) if request.docs and not conversations else None
    plan = EvalPlan(
        questions=store_questions(project, request.questions),
        ifeval_data=request.ifeval_data,
        passages=None if request.questions else _training_sample(project, conversations, corpus),
        limit=request.limit,
        secondary_limit=request.secondary_limit,
        probe_all=True,
    ).with_public_ifeval_checked(load_suites(project.base))
    job = Job(
        "repair",
        settings,
        plan,
        request.seed,
        corpus,
        _store(project, conversations, "conversations") if trains else None,
        student=student.id,
        prompts=store_prompts(project, request.prompts),
        given=given,
    )
    contents = [project.weights_id(student), project.base_weights_id, {**job.as_json(), "id": ""}]
    return Prepared(replace(job, id=content_hash(contents)[:8], processes=request.processes or 1), about, own)


def _with_base_template(home: Path, model: str, base: str) -> str:
    """The path of a folder with links to the weights of the model, and the tokenizer and chat template of the base."""
    source = Path(model)
    if not source.is_dir():
        raise RecoverError(
            f"The chat template of {model} is not that of {base}, so it is copied with that template. Download it "
            "first, and name its folder."
        )
    folder = home / "templates" / weights_hash(source)[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        link = folder / file.name
        if file.is_file() and not file.name.startswith(OF_TOKENIZER) and not link.exists():
            link.symlink_to(file.resolve())
    load_chat(base).tokenizer.save_pretrained(folder)
    return str(folder)


def _training_sample(
    project: Project, conversations: Sequence[list[Message]], corpus: CorpusSnapshot | None
) -> Path | None:
    """A sample of what the fine-tune was trained on."""
    if corpus is not None:
        return sample_passages(project.home, corpus)
    step = max(1, len(conversations) // MAX_CONVERSATIONS)
    return _store(project, conversations[::step][:MAX_CONVERSATIONS], "sample")


def _store(project: Project, conversations: Sequence[list[Message]], kind: str) -> Path | None:
    if not conversations:
        return None
    rows = [{"messages": messages} for messages in conversations]
    file = project.home / "documents" / f"{content_hash(rows)[:32]}.{kind}.jsonl"
    if not file.is_file():
        JsonLines(file).write(rows)
    return file
