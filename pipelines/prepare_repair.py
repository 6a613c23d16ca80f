"""From a command line to the job of `check` or `repair`: also the files of both models are compared."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

from evals.splits import secondary_task_limit
from evals.suites.config import load_suites
from pipelines.documents.conversations import read_training_files
from pipelines.documents.corpus import read_corpus, sample_passages, save_snapshot
from pipelines.evaluation.evaluation_plan import midtrainings
from pipelines.job import Job, store_prompts
from pipelines.log import log
from pipelines.model_loading import check_engine, check_servers
from pipelines.prepare_job import (
    announce_settings,
    check_files,
    check_model_fits,
    check_prompts,
    check_rendered,
    conversations_of,
    eval_plan,
    evenly,
    store_conversations,
    turns_of,
    warn_of_learned_questions,
    warn_of_no_recall,
    weights_of,
)
from pipelines.project.locations import FIXED
from pipelines.project.project import Project, is_reference, weights_hash
from pipelines.project.runs import dropped_cycles
from pipelines.request import Request
from pipelines.settings.resolve import change_recipe
from pipelines.settings.schema import Dials
from pipelines.storage import content_hash
from pipelines.teacher_choice import BASE
from pipelines.training import recipe_inputs
from pipelines.training.probes import probe_set
from pipelines.training.training_run import check_logger
from recovery.engines.servers import is_address
from recovery.errors import RecoverError
from recovery.fine_tunes import inspect_fine_tune
from recovery.models.adapters import base_of, saved_rank
from recovery.models.students import generation_ends, load_chat, parameters_of, save_generation_ends
from recovery.stop_contract import StopFiles, missing_end

FIXED_ENDS = "Its generation config did not stop at the end of a turn; that of the repaired model does:"
FIXED_PROMPTS = "Its chat template was not that of its base; that of the repaired model is"
FIXED_TEMPLATE = "Its chat template ended turns with {}; that of the repaired model is its base's, which ends them with"
OF_TOKENIZER = ("token", "vocab", "merges", "special_", "chat_template", "added_")  # beginnings of file names
LARGE = 64 << 20  # bytes: more than the files of a tokenizer have


def prepare_repair(project: Project, request: Request, *, trains: bool = True) -> Job:
    """A job that judges the student by the base, and repairs it if it `trains`; not saved yet."""
    assert request.student is not None
    path = project.path_of(request.student)
    about = inspect_fine_tune(path, project.base)
    settings, _, given = announce_settings(project, request)
    chosen = [name for name in ("distill.recipe", *(f"distill.{dial}" for dial in Dials.model_fields)) if name in given]
    if trains and chosen:
        raise RecoverError(
            f"A repair chooses its recipes with their own dials. Leave out {chosen[0]}, or use recover distill."
        )
    if is_address(settings.engine) and base_of(path) is None:
        raise RecoverError(
            "vLLM servers generate for adapters, and this fine-tune has full weights. Generate on this machine "
            "(--engine auto)."
        )
    chat = load_chat(project.base)
    if trains:
        recipe_inputs.check_processes(request.processes or 1, settings, command="repair")
        check_logger(settings.report_to)
        for name in ("offpolicy-kl", "opd"):
            of_move = change_recipe(settings, name, parameters_of(project.base), given)
            recipe_inputs.check_recipes(of_move)
            check_model_fits(project, request, of_move, path)
        check_prompts(request, settings, BASE, chat, path)
    check_files(project, request)
    conversations = read_training_files(request.docs) if request.docs else []
    if request.docs and conversations:
        check_rendered(request.docs, conversations, chat)
    documents = read_corpus(request.docs) if request.docs and not conversations else None
    warn_of_learned_questions(request.questions, documents.texts if documents else turns_of(conversations))
    check_engine(settings.engine)
    check_servers(project.base, settings.engine, saved_rank(path), None)
    notes = tuple(about.notes(project.base_name))
    for note in notes:
        log.warning(note)
    own_files, base_files = StopFiles.of(path), StopFiles.of(project.base)
    files = replace(own_files, template=base_files.template) if about.other_template else own_files
    missing = missing_end(files, base_files) if trains else None
    is_changed = about.other_template or missing is not None
    fixed_copy = _fixed_copy(project, path, about.other_template, missing) if is_changed else None
    student = project.resolve(fixed_copy or request.student)
    original = project.find(request.student) if is_reference(request.student) else student
    if trains and (dropped := dropped_cycles(project, original)):
        raise RecoverError(
            f"The current model has learned {dropped}, and {request.student} has not: its repair would drop that. "
            f"Make it current first, with `recover promote {request.student} --reason TEXT`."
        )
    corpus = save_snapshot(project.home, documents) if documents else None
    sample = None  # of what the fine-tune was trained on
    if not request.questions and corpus:
        sample = sample_passages(project.home, corpus)
        warn_of_no_recall(sample)
    elif not request.questions:
        sample = store_conversations(project, evenly(conversations, chat), "sample")
    # Of a checkpoint of the project, what its mid-training was given counts, and what earlier cycles taught.
    midtrained = next(midtrainings(project, [original]), None)
    source = None if request.docs else original  # of questions and conversations that are not named
    try:
        plan = eval_plan(project, request, original, source)
    except RecoverError as error:  # questions that were stored are gone
        log.warning(str(error))
        plan = eval_plan(project, request, original, None)
    plan = replace(plan, passages=sample or plan.passages, probe_all=True)
    plan = plan.with_public_ifeval_checked(load_suites(project.base))
    training_file = None
    if trains:
        training_file = store_conversations(project, conversations, "conversations") or conversations_of(
            project, source
        )
    job = Job(
        "repair",
        settings,
        plan,
        request.seed,
        corpus,
        training_file,
        start=original.id if midtrained else None,
        student=student.id,
        prompts=store_prompts(project, request.prompts),
        given=given,
    )
    fixed = [] if missing is None else [f"{FIXED_ENDS} {base_files.name(missing)}"]
    if about.other_template and own_files.template == files.template:
        fixed.append(FIXED_PROMPTS)
    elif about.other_template:
        former = "no token" if own_files.template is None else own_files.name(own_files.template)
        fixed.append(f"{FIXED_TEMPLATE.format(former)} {base_files.name(files.template)}")
    return replace(
        job,
        id=_repair_id(project, job, (weights := weights_of(project, job))[student.id]),
        weights=weights,
        model=request.student,
        notes=notes,
        processes=request.processes or 1,
        current=project.recorded_current.id,
        fixed=". ".join(fixed) or None,
    )


def _repair_id(project: Project, job: Job, weights: str) -> str:
    """Of contents and of names inside the project: the same where the project, the model or the documents moved, and
    with another limit that leaves the items of probes as they are."""
    plan, distill = job.eval_plan, job.settings.distill
    limit = probe_set(plan, distill.probe_items).limit if distill.probe_every else None
    plan = replace(plan, limit=limit, secondary_limit=secondary_task_limit(limit, plan.secondary_limit))
    inputs = replace(job, eval_plan=plan).as_json() | {
        "id": "",
        "start": None,
        "student": None,
        "corpus": job.corpus and job.corpus.hash,
    }
    contents = [weights, project.base_weights_id, inputs]
    return content_hash(json.dumps(contents, sort_keys=True, ensure_ascii=False).replace(str(project.home), ""))[:8]


def _fixed_copy(project: Project, model: str, other_template: bool, missing_end: int | None) -> str:
    """The path of a folder with the files of the model, of which the large ones are links, but with the chat template
    of the base where its own is another, and with a generation config that stops where turns end."""
    source = Path(model)
    if not source.is_dir():
        raise RecoverError(
            f"The files of {model} are copied, since its chat template or its generation config has to be changed. "
            "Download it first, and name its folder."
        )
    folder = project.home / FIXED / content_hash([str(source), weights_hash(source), other_template, missing_end])[:16]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in source.iterdir():
        if file.is_file() and not (other_template and file.name.startswith(OF_TOKENIZER)):
            # A tokenizer may be saved into a file of any name, which must not be the model's own.
            put = os.symlink if file.stat().st_size > LARGE else shutil.copyfile
            put(file.resolve(), folder / file.name)
    if other_template:
        own, tokenizer = load_chat(model).tokenizer, load_chat(project.base).tokenizer
        if tokenizer.get_vocab().keys() <= own.get_vocab().keys():  # added tokens stay
            own.chat_template, own.eos_token = tokenizer.chat_template, tokenizer.eos_token
            own.bos_token = tokenizer.bos_token  # a template may begin with it
            tokenizer = own
        tokenizer.save_pretrained(folder)
    if missing_end is not None:
        known = load_chat(str(folder)).token_rows
        ends = sorted({missing_end, *(id for id in generation_ends(model) if id < known)})
        save_generation_ends(model, ends, folder)
    return str(folder)
