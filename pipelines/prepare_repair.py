"""From the command line of `check` and `repair` to a job: compare the files of both models, and say what to measure."""

import json
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
from pipelines.storage.atomic_files import JsonLines, write_atomic
from pipelines.storage.content_cache import content_hash
from pipelines.training.process_checks import check_processes
from recovery.errors import RecoverError
from recovery.fine_tunes import FineTune, inspect_fine_tune
from recovery.models.chat_template import Message
from recovery.models.students import generation_ends, load_chat
from recovery.stop_contract import StopFiles, missing_end

MAX_CONVERSATIONS = 300  # of a training file, whose answers are scored
MENDED = "Its generation config did not stop at the end of a turn; that of the repaired model does:"
OF_TOKENIZER = ("token", "vocab", "merges", "special_", "chat_template", "added_")  # beginnings of file names


@dataclass(frozen=True)
class Prepared:
    job: Job
    about: FineTune
    own_template: str | None = None  # path of the model with its own chat template, where that is not the base's
    mended: str | None = None  # what was wrong with its generation config and is right in the copy that is repaired


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
    missing = missing_end(StopFiles.of(path), StopFiles.of(project.base)) if trains else None
    is_changed = own is not None or missing is not None
    student = project.resolve(_mended_copy(project, path, own is not None, missing) if is_changed else request.student)
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
    job = replace(job, id=content_hash(contents)[:8], processes=request.processes or 1)
    return Prepared(
        job, about, own, None if missing is None else f"{MENDED} {StopFiles.of(student.path).name(missing)}"
    )


def _mended_copy(project: Project, model: str, other_template: bool, missing_end: int | None) -> str:
    """The path of a folder with links to the files of the model, but with the tokenizer and chat template of the base
    where its own are others, and with a generation config that stops where turns end."""
    source = Path(model)
    if not source.is_dir():
        raise RecoverError(
            f"The files of {model} are copied, since its chat template or its generation config has to be changed. "
            "Download it first, and name its folder."
        )
    folder = project.home / "mended" / content_hash([weights_hash(source), other_template, missing_end])[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        link = folder / file.name
        is_changed = other_template and file.name.startswith(OF_TOKENIZER)
        if file.is_file() and not is_changed and not link.exists():
            link.symlink_to(file.resolve())
    if other_template:
        load_chat(project.base).tokenizer.save_pretrained(folder)
    if missing_end is not None:
        file = folder / "generation_config.json"
        config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        file.unlink(missing_ok=True)  # it is a link to the model's own
        ends = sorted({missing_end, *generation_ends(model)})
        write_atomic(file, [json.dumps(config | {"eos_token_id": ends}, indent=2), "\n"])
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
