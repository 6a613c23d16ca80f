"""From what was typed to a job: the project opened, settings resolved and announced, everything checked that can be
checked before anything is computed."""

import hashlib
import json
import shutil
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from db.errors import RecordError
from db.views import Checkpoint
from evals.suites.config import files_of, suites_of
from evals.suites.custom_checks import read_tasks
from evals.suites.instruction_following import read_prompts as read_ifeval
from evals.suites.knowledge import read_questions
from pipelines.documents import read_corpus
from pipelines.documents.hub import is_hub_id
from pipelines.documents.snapshot import CorpusSnapshot, sample_passages, save_snapshot
from pipelines.evaluation.measure import EvalPlan
from pipelines.files import write_atomic
from pipelines.job import Job
from pipelines.log import log
from pipelines.machine.memory_check import check_it_fits, check_window
from pipelines.project.past_cycles import past_cycles
from pipelines.project.paths import relocate
from pipelines.project.project import Project
from pipelines.settings import AUTO, Settings, differences, replay_share, settled
from pipelines.synthetic.prompts import read_prompts
from pipelines.training.loggers import check_sink
from pipelines.training.mix_search import describe_search
from pipelines.training.stages import open_subject, paraphrases_of
from pipelines.training.teachers import ROUTER
from recovery.errors import RecoverError
from recovery.models.students import load_chat, parameters_of
from recovery.recipes import RECIPES, recipe
from recovery.teachers import check_same_tokenizer

# What a command line can give all that it needs: the student's rollouts, or the teacher's, and a teacher to judge them.
DISTILLING = [name for name, r in RECIPES.items() if r.teacher_weight == 1 and r.data in ("none", "teacher")]

BESIDE = 200  # items of a task that no verdict is about: they are told, and so many show what there is to see


@dataclass(frozen=True)
class Request:
    """What was typed, command by command; what a command does not take stays None."""

    command: str
    base: str | None = None
    docs: Path | None = None
    teacher: str | None = None
    student: str | None = None
    prompts: Path | None = None
    questions: Path | None = None
    ifeval_data: Path | None = None
    limit: int | None = None
    seed: int = 0
    ask: bool = False
    flags: dict[str, Any] = field(default_factory=dict)  # settings that have a flag of their own
    dotted: tuple[str, ...] = ()


TEMPLATE = """\
# What is not set here has a default that depends on the model's size; `recover cycle --docs DIR --dry-run` shows them.
# [midtrain]
# epochs = 3         # for a small model 8
# [distill]
# steps = 100        # at most; for a small model 40
# [gate]
# behaviour_margin = 0.03
"""


def initialise(root: Path, base: str | None, db: str | None) -> Project:
    """A project with its settings file; what is there already stays as it is."""
    file = root / "recover.toml"
    if file.exists() and (base or db):
        raise RecoverError(f"{file} is there already; write base or db into it")
    fresh = not file.exists()
    if fresh:
        root.mkdir(parents=True, exist_ok=True)
        said = [f"{name} = {json.dumps(value)}" for name, value in (("base", base), ("db", db)) if value]
        file.write_text("\n".join([*said, TEMPLATE]), encoding="utf-8")
    try:
        project = Project.open(root, base)
        parameters_of(project.base)  # a base that cannot be had is told now
        _ = project.id
    except (RecoverError, RecordError):
        if fresh:  # what was refused is not to be met again by every later command
            file.unlink()
        raise
    return project


def describe_job(project: Project, request: Request) -> dict[str, Any]:
    """What `begin` would set out to do, found by looking alone."""
    settings = announced_settings(project, request)
    check_recipes(settings)
    check_sink(settings.report_to)
    _check_it_fits(project, request, settings)
    corpus = read_corpus(request.docs) if request.docs else None
    if corpus is not None:
        _report_skipped(corpus.skipped)
    student = _student(project, request) if request.command == "distill" else None
    teacher = _teacher(project, request)
    return {
        "command": request.command,
        "base": project.base,
        "start": (student or project.current).reference,
        "files": corpus.files if corpus else None,
        "characters": corpus.texts.characters if corpus else None,
        "teacher": request.teacher if request.teacher == ROUTER else teacher.reference if teacher else None,
        "replay": describe_search() if corpus and settings.midtrain.replay == AUTO else None,
        "distill_steps": settings.distill.steps if request.command != "midtrain" else None,
        "settings": settings.as_dict(),
    }


def prepare_job(project: Project, request: Request) -> Job:
    """A job ready to be carried out, and written down."""
    settings = announced_settings(project, request)
    check_recipes(settings)
    check_sink(settings.report_to)
    _check_it_fits(project, request, settings)
    own = [file for file in files_of(suites_of(project.base)) if file.suffix == ".jsonl"]
    for file, read in (
        *((each, read_tasks) for each in own),
        (request.questions, read_questions),
        (request.ifeval_data, read_ifeval),
        (request.prompts, read_prompts),
    ):
        if file is not None:
            read(file)
    teacher = _teacher(project, request)
    student = _student(project, request) if request.command == "distill" else None
    if teacher is not None:
        check_same_tokenizer(load_chat(student.path if student else project.base), load_chat(teacher.path))
    start = project.current if request.docs else student
    measures = _measures(project, request, start, student)
    if request.command != "midtrain" or settings.midtrain.replay == AUTO:  # else nothing is measured
        measures = measures.settled(suites_of(project.base))
    kept = _read(project, request.docs) if request.docs is not None else None
    if kept is not None and measures.questions is None:
        measures = replace(measures, passages=sample_passages(project.home, kept))
    if kept is not None and (times := settings.midtrain.reword):
        log.info("the clean base rewords a few passages, to see whether it can")
        paraphrases_of(project, kept, times, request.seed).try_out(partial(open_subject, project.base, settings.engine))
    job = Job(
        request.command,
        settings.as_dict(),
        request.seed,
        start=start.id if start else None,
        student=student.id if student else None,
        teacher=teacher.id if teacher else None,
        router=request.teacher == ROUTER,
        prompts=_kept_prompts(project, request.prompts),
        measures=measures.to_json(),
        ask=request.ask,
    )
    if kept is not None:
        job = replace(job, corpus=kept.hash, documents=str(kept.path), files=kept.files)
    return job.write(project.home)


def _read(project: Project, docs: Path) -> CorpusSnapshot:
    corpus = read_corpus(docs)
    _report_skipped(corpus.skipped)
    kept = save_snapshot(project.home, corpus)
    return replace(kept, path=corpus.path.resolve()) if corpus.path.exists() else kept  # a hub id stays what it is


def announced_settings(project: Project, request: Request) -> Settings:
    if project.base_is_default:
        log.info(f"base: the built-in lab model ({project.base}); choose another with --base FOLDER or a hub id")
    settings, usual = settled(parameters_of(project.base), project.root, request.flags, request.dotted)
    for line in differences(settings, usual):
        log.info(f"setting {line}")
    return settings


def _check_it_fits(project: Project, request: Request, settings: Settings) -> None:
    check_window(project.base, settings)
    begun = project.reader.project(project.name) is not None  # looking must not begin it: another base may fit
    if not begun:
        outside = request.student if request.student and Path(request.student).is_dir() else project.base
        check_it_fits(outside, settings, *teachers_of(request, settings, project.base, None))
        return
    start = project.current if request.docs else _student(project, request)
    promoted = project.current.path if past_cycles(project, project.current) else None
    check_it_fits(start.path, settings, *teachers_of(request, settings, project.base, promoted))


def teachers_of(request: Request, settings: Settings, base: str, promoted: str | None) -> tuple[list[str], list[str]]:
    """Who is in memory beside the student: while it reads, and while it is distilled. `promoted`: what was promoted
    last, where cycles have taught it something."""
    wanted = settings.midtrain
    reading: list[str] = []
    if request.docs and wanted.soft:
        of_base = wanted.replay == AUTO or replay_share(settings) > 0 or wanted.recollect > 0
        reading = [base] * of_base + ([promoted] if promoted and wanted.rehearse > 0 else [])
    if request.command == "midtrain":
        return reading, []
    named = request.teacher or base
    outside = Path(named).is_dir() or is_hub_id(named)
    return reading, [named if outside else base] + ([promoted] if promoted and request.teacher == ROUTER else [])


def check_recipes(settings: Settings) -> None:
    if recipe(settings.midtrain.recipe).data != "documents":
        raise RecoverError(f"mid-training reads documents: {settings.midtrain.recipe!r} does not; use midtrain")
    wanted = settings.distill
    if wanted.recipe not in DISTILLING:
        raise RecoverError(f"distillation has no recipe {wanted.recipe!r}; choose one of {', '.join(DISTILLING)}")
    if wanted.rows % recipe(wanted.recipe).group:
        raise RecoverError(f"distill.rows = {wanted.rows} does not divide into groups of {recipe(wanted.recipe).group}")


def _student(project: Project, request: Request) -> Checkpoint:
    found = project.resolve(request.student) if request.student else project.latest_midtrained()
    if found is None:
        raise RecoverError("nothing mid-trained waits here: run `recover midtrain --docs DIR`, or give --student REF")
    return found


def _teacher(project: Project, request: Request) -> Checkpoint | None:
    """Of a router, who teaches the manners."""
    return project.resolve("base" if request.teacher == ROUTER else request.teacher) if request.teacher else None


def _measures(project: Project, request: Request, start: Checkpoint | None, student: Checkpoint | None) -> EvalPlan:
    """Where no questions are given now, what was given with the documents; and the questions of earlier cycles."""
    questions, passages = _kept_questions(project, request.questions), None
    if questions is None and student is not None and student.run_id:
        run = project.reader.run(student.run_id)
        said = run.settings if run else {}
        kept = (said.get(name) for name in ("questions", "passages"))
        questions, passages = (relocate(project.home, Path(file)) if file else None for file in kept)
    before = past_cycles(project, start) if start else []
    earlier = tuple((t.cycle, t.questions) for t in before if t.questions is not None)
    return EvalPlan("all", questions, request.ifeval_data, passages, request.limit, BESIDE, earlier=earlier)


def _kept_questions(project: Project, file: Path | None) -> Path | None:
    """Under its content, where later cycles find it whatever becomes of the user's file."""
    if file is None:
        return None
    content = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    kept = project.home / "questions" / content / file.name
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, kept)
    return kept


def _kept_prompts(project: Project, file: Path | None) -> str | None:
    if file is None:
        return None
    texts = "\n".join(json.dumps({"prompt": text}, ensure_ascii=False) for text in read_prompts(file))
    kept = project.home / "cache" / f"prompts-{hashlib.sha256(texts.encode()).hexdigest()[:16]}.jsonl"
    write_atomic(kept, [texts, "\n"])
    return str(kept)


def _report_skipped(skipped: list[tuple[Path, str]]) -> None:
    for path, reason in skipped[:10]:
        log.info(f"skipped {path}: {reason}")
    if len(skipped) > 10:
        log.info(f"skipped {len(skipped) - 10} more files")
