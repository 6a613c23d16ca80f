"""From a command line to a job: resolve the settings, and check everything that can be checked before training."""

import json
import math
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from db.tables import Checkpoint
from evals.suites.config import load_suites, suite_files
from evals.suites.custom_checks import read_tasks
from evals.suites.instruction_following import read_prompts as read_ifeval
from evals.suites.knowledge import read_questions
from evals.suites.training_texts import (
    CONVERSATION_WINDOW,
    Conversation,
    encode_conversation,
    find_clozes,
    read_passages,
)
from pipelines.documents.conversations import GIVE_CONVERSATIONS, read_training_files, warn_of_unread_tools
from pipelines.documents.corpus import (
    Corpus,
    check_questions_apart,
    is_hub_id,
    read_corpus,
    sample_passages,
    save_snapshot,
)
from pipelines.documents.tokenization import estimated_tokens
from pipelines.evaluation.evaluation_plan import EvalPlan, midtrainings
from pipelines.job import Job, store_file, store_prompts
from pipelines.log import log
from pipelines.model_loading import check_engine, check_servers
from pipelines.project.locations import relocate
from pipelines.project.project import Project, is_reference
from pipelines.project.runs import dropped_cycles, last_time, past_cycles
from pipelines.request import READ, Request
from pipelines.settings.defaults import midtraining_steps, warn_of_few_steps
from pipelines.settings.resolve import Resolved, differences, resolve_settings
from pipelines.settings.schema import Settings
from pipelines.storage import JsonLines, content_hash
from pipelines.synthetic.passage_prompts import passages_in
from pipelines.synthetic.prompts import MAX_PROMPT_TOKENS, other_contexts
from pipelines.teacher_choice import (
    BASE,
    Itself,
    Model,
    Router,
    Served,
    TeacherChoice,
    named_checkpoints,
    parse_teacher,
    with_ids,
)
from pipelines.training import recipe_inputs
from pipelines.training.training_run import check_logger
from pipelines.training_memory import check_memory, check_window
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat, check_same_tokenizer
from recovery.models.students import load_chat, parameters_of
from recovery.recipes import recipe

HELD_OUT = 10  # one of so many conversations is not learned, where their likelihood is what is measured
MAX_CONVERSATIONS = 300  # of a training file, whose answers are scored
MIN_WORDS = 3  # of a question that is looked for in what is learned
WORD = re.compile(r"\w+")


def check_request(
    project: Project, request: Request
) -> tuple[Resolved, TeacherChoice[str], Corpus | None, list[Conversation]]:
    """Check everything that a command was given, and read its documents and conversations.

    Creates no project: after a command is refused, another base may be named."""
    resolved = announce_settings(project, request)
    settings = resolved.settings
    recipe_inputs.check_recipes(settings)
    recipe_inputs.check_mix(settings, request.mix, request.assignments)
    if request.midtrains:
        recipe_inputs.check_midtraining(settings.midtrain.recipe, request.docs, request.conversations)
    teacher = parse_teacher(_named_teacher(request, settings))
    if settings.distill.texts and isinstance(teacher, Itself) and request.command != "midtrain":
        raise RecoverError(
            "The base's texts are taught by the teacher, and that is the student itself. Leave out distill.texts."
        )
    recipe_inputs.check_processes(request.processes or 1, settings, teacher, request.command)
    check_logger(settings.report_to)
    check_engine(settings.engine)
    if request.midtrains:
        start = project.path_of("current")
    else:
        start = project.path_of(request.student) if request.student else _student(project, request).path
    check_model_fits(project, request, settings, start, teacher)
    check_files(project, request)
    chat = load_chat(project.base if request.midtrains else start)  # refuses a model without a tokenizer
    check_prompts(request, settings, teacher, chat, start)
    if not isinstance(teacher, Itself):
        for reference in named_checkpoints(teacher) or ["base"]:
            check_same_tokenizer(chat, load_chat(project.path_of(reference)))
    conversations = _read_conversations(request.conversations, chat) if request.conversations else []
    corpus = read_corpus(request.docs) if request.docs else None
    warn_of_learned_questions(request.questions, chain(turns_of(conversations), corpus.texts if corpus else ()))
    for line in corpus.skipped_lines() if corpus else ():
        log.info(line)
    if corpus and recipe(settings.midtrain.recipe).context:
        passages = passages_in(corpus.texts)  # raises where there are none, as the next line does for one alone
        if settings.distill.shuffle_contexts:
            other_contexts(passages, request.seed)
    return resolved, teacher, corpus, conversations


def _read_conversations(path: Path, chat: Chat) -> list[Conversation]:
    """Each once. Raises where none has an answer that can be learned."""
    if not path.exists():
        raise RecoverError(f"There is no file or folder {path}. {GIVE_CONVERSATIONS}")
    conversations = list({json.dumps(row, sort_keys=True): row for row in read_training_files(path)}.values())
    if not conversations:
        raise RecoverError(f"{path} has no conversations, or files of other kinds beside them. {GIVE_CONVERSATIONS}")
    check_rendered(path, conversations, chat)
    warn_of_unread_tools(conversations, chat)
    return conversations


def check_rendered(path: Path, conversations: Sequence[Conversation], chat: Chat) -> None:
    if not any(_has_answer(conversation, chat) for conversation in conversations):
        raise RecoverError(
            f"{path} has no conversation with an answer that the chat template can render, within its first "
            f"{CONVERSATION_WINDOW:,} tokens. {GIVE_CONVERSATIONS}"
        )


def _has_answer(conversation: Conversation, chat: Chat) -> bool:
    """Whether one can be scored."""
    return any(encode_conversation(chat, conversation)[1])


def turns_of(conversations: Iterable[Conversation]) -> Iterator[str]:
    turns = (message.get("content") for conversation in conversations for message in conversation["messages"])
    return (turn for turn in turns if isinstance(turn, str))


def warn_of_learned_questions(questions: Path | None, texts: Iterable[str]) -> None:
    """Answers to questions that stand in what is learned show what was learned by heart, not what is known."""
    if questions is None:
        return
    word_lists = [tuple(WORD.findall(question.text.lower())) for question in read_questions(questions)]
    looked_for, lengths, learned = set(word_lists), defaultdict[str, set[int]](set), set[tuple[str, ...]]()
    for words in looked_for:
        if len(words) >= MIN_WORDS:
            lengths[words[0]].add(len(words))
    for text in texts:
        words = tuple(WORD.findall(text.lower()))
        for i, word in enumerate(words):
            learned.update(words[i : i + length] for length in lengths.get(word, ()))
        learned &= looked_for
    if count := sum(words in learned for words in word_lists):
        log.warning(
            f"{count:,} of the {len(word_lists):,} questions are in what is learned, word for word: their answers are "
            "learned by heart. Ask others, in other words (--questions), and keep their file out of what is learned"
        )


def warn_of_no_recall(passages: Path | None) -> None:
    if passages is not None and not any(map(find_clozes, read_passages(passages))):
        log.warning(
            "The documents have no names or numbers whose recall could be measured, as in scripts without capitals or "
            "spaces: new knowledge is shown in bits per byte, and not judged. Give questions (--questions)"
        )


def describe_job(project: Project, request: Request) -> dict[str, Any]:
    """What `prepare_job` would prepare (`--dry-run`); writes nothing."""
    (settings, _, _), teacher, corpus, conversations = check_request(project, request)
    named, own_dials = _named_teacher(request, settings), recipe(settings.distill.recipe)
    dials = {
        name: {"value": value, "default": getattr(own_dials, name)}
        for name, value in recipe_inputs.chosen_recipe(settings.distill).dials.items()
    }
    steps, start = None, "current" if request.midtrains else request.student
    if project.row and not request.midtrains and (start is None or is_reference(start)):
        _warn_of_dropped_cycles(project, project.find(start) if start else _student(project, request))
    if corpus and not conversations and not recipe(settings.midtrain.recipe).context:
        chat = load_chat(project.base)
        tokens = estimated_tokens(corpus.texts, chat.tokenizer) + len(corpus.texts) * chat.tokens_around_document
        steps = midtraining_steps(settings.midtrain, tokens)
        warn_of_few_steps(settings.midtrain, steps)
    return {
        "command": request.command,
        "base": project.base_name,
        "start": project.name_of(start) if start else _student(project, request).reference,
        "files": corpus.files if corpus else None,
        "characters": corpus.texts.characters if corpus else None,
        "conversations": len(conversations) if request.conversations else None,
        "teacher": project.name_of(teacher.checkpoint) if isinstance(teacher, Model) else named,
        "midtrain_steps": steps,
        "distill_steps": settings.distill.most_steps if request.command != "midtrain" else None,
        "dials": dials if request.command != "midtrain" else None,
        "settings": settings.model_dump(),
    }


def _warn_of_dropped_cycles(project: Project, student: Checkpoint) -> None:
    if dropped := dropped_cycles(project, student):
        log.warning(
            f"The current model has learned {dropped}, and {student.reference} has not: what comes of it is not "
            "promoted, even if it passes the gate"
        )


def prepare_job(
    project: Project,
    request: Request,
    job_id: str | None = None,
    *,
    is_alone: bool = True,
    start: Checkpoint | None = None,
) -> Job:
    """A job that is ready to run, and saved; by default under a new id. Unless it `is_alone`, nothing is said about
    how long the last one took. `start` is what is mid-trained, by default the current checkpoint."""
    (settings, _, given), teacher, documents, conversations = check_request(project, request)
    served_teacher = teacher.addresses if isinstance(teacher, Served) else None
    check_servers(project.base, settings.engine, settings.lora_rank, served_teacher)
    if is_alone and project.row and (last := last_time(project, request.command)):
        log.info(last)
    student = None if request.midtrains else _student(project, request)
    if student:
        _warn_of_dropped_cycles(project, student)
    start = student or start or project.current
    plan = eval_plan(project, request, start, student)
    if request.command != "midtrain":  # otherwise nothing is measured
        plan = plan.with_public_ifeval_checked(load_suites(project.base))
    corpus = save_snapshot(project.home, documents) if documents else None
    if corpus is not None and plan.questions is None:
        plan = replace(plan, passages=sample_passages(project.home, corpus))
        warn_of_no_recall(plan.passages)
    elif plan.questions is None and conversations and (sample := _held_out(conversations, load_chat(project.base))):
        plan = replace(plan, passages=store_conversations(project, sample, "sample"))
        log.info(
            f"{len(sample)} of {len(conversations):,} conversations are held out: how likely their answers are shows "
            "what was learned of the others"
        )
        conversations = [conversation for conversation in conversations if conversation not in sample]
    job = Job(
        request.command,
        settings,
        plan,
        request.seed,
        corpus,
        store_conversations(project, conversations, "conversations") or conversations_of(project, student),
        start=start.id,
        student=student.id if student else None,
        current=project.recorded_current.id,
        teacher=with_ids(teacher, lambda reference: project.resolve(reference).id),
        prompts=store_prompts(project, request.prompts),
        conversations=request.conversations and request.conversations.resolve(),
        teacher_context=store_file(project, request.teacher_context, "contexts"),
        given=given if request.teacher in (None, "base") else given | {"teacher": request.teacher},
        processes=request.processes or 1,
    )
    job = replace(job, id=job_id or job.id, weights=weights_of(project, job))
    return job.save(project.home)


def weights_of(project: Project, job: Job) -> dict[int, str]:
    """What identifies a job's student and its models from outside, by checkpoint; a model that is gone is missing."""
    named = [project.reader.checkpoint(id) for id in sorted(job.checkpoints)]
    models = [project.locate(c) for c in named if c and (c.role == "external" or c.id == job.student)]
    return {c.id: project.weights_id(c) for c in models if Path(c.path).exists() or not Path(c.path).is_absolute()}


def check_same_models(project: Project, job: Job) -> None:
    """Raise if one of these models was changed since the job began: what was saved and measured is of the former."""
    now = weights_of(project, job)
    for id, weights in job.weights.items():
        if now.get(id) != weights and (model := project.reader.checkpoint(id)):
            raise RecoverError(
                f"The model {model.path} {'was changed' if id in now else 'is gone'} since this command began. "
                "Restore it, or discard what was done with `recover cancel` and run the command again."
            )


def _named_teacher(request: Request, settings: Settings) -> str | None:
    if request.teacher is not None or request.command == "midtrain":
        return request.teacher
    return recipe(settings.distill.recipe).teacher


def announce_settings(project: Project, request: Request) -> Resolved:
    """Resolve the settings; log each that is not the default."""
    if project.base_is_default:
        log.info(f"Base: the built-in lab model ({project.base}); choose another with --base FOLDER or a hub id")
    resolved = resolve_settings(parameters_of(project.base), project.root, request.setting_flags(), request.assignments)
    for line in differences(resolved.settings, resolved.default):
        log.info(f"Setting {line}")
    return resolved


def teachers_in_memory(
    request: Request, settings: Settings, teacher: TeacherChoice[str], base: str, promoted: str | None
) -> tuple[list[str], list[str]]:
    """The models beside the student during mid-training and during distillation.

    `promoted` is the last promoted checkpoint, if earlier cycles have taught it something."""
    midtrain = settings.midtrain
    midtraining: list[str] = []
    midtrains = request.command in READ
    if midtrains and recipe(midtrain.recipe).context:
        midtraining = [base, *([promoted] if promoted else [])]
    elif midtrains and midtrain.soft_labels:
        if midtrain.mix.answers > 0 or midtrain.mix.texts > 0:
            midtraining.append(base)
        if promoted and midtrain.mix.earlier > 0:
            midtraining.append(promoted)
    chosen = recipe_inputs.chosen_recipe(settings.distill)
    needs_teacher = request.command != "midtrain" and (chosen.scores_with_teacher or chosen.continued)
    if not needs_teacher or isinstance(teacher, Served):
        return midtraining, []
    named = [
        reference if Path(reference).is_dir() or is_hub_id(reference) else base
        for reference in named_checkpoints(teacher)
    ]
    return midtraining, [*(named or [base]), *([promoted] if promoted and teacher == Router() else [])]


def check_model_fits(
    project: Project, request: Request, settings: Settings, start: str, teacher: TeacherChoice[str] = BASE
) -> None:
    check_window(project.base, settings)
    promoted = project.current.path if project.row and past_cycles(project, project.current) else None
    teachers = teachers_in_memory(request, settings, teacher, project.base, promoted)
    check_memory(start, settings, *teachers, generates=request.command != "midtrain")


def check_files(project: Project, request: Request) -> None:
    """Read every file once: what is wrong with one is an error before anything is computed."""
    for file in suite_files(load_suites(project.base)):
        if file.suffix == ".jsonl":
            read_tasks(file)
    if request.questions:
        read_questions(request.questions)
    if request.ifeval_data:
        read_ifeval(request.ifeval_data)
    if request.docs and request.questions:
        check_questions_apart(request.questions, request.docs)


def check_prompts(request: Request, settings: Settings, teacher: TeacherChoice[str], chat: Chat, model: str) -> None:
    """Everything about prompts and contexts that can be checked before a model is loaded."""
    files = recipe_inputs.RecipeFiles(request.prompts, request.teacher_context)
    if request.command == "midtrain":
        files.check_midtrain(settings.midtrain.recipe)
        if files.teacher_context is None:
            return
        distill = recipe_inputs.as_distillation(settings).distill
        prompts = files.read(distill, request.seed)
    else:
        distill = settings.distill
        files.check(distill, teacher)
        longest = " a" * MAX_PROMPT_TOKENS  # of what the base may write
        prompts = files.read(distill, request.seed, lambda: [longest])
        recipe_inputs.check_domains(prompts, teacher)
    recipe_inputs.check_prompts(prompts, distill, chat, model)
    if request.questions:
        recipe_inputs.check_contamination(prompts, [question.text for question in read_questions(request.questions)])


def _student(project: Project, request: Request) -> Checkpoint:
    student = project.resolve(request.student) if request.student else project.latest_midtrained()
    if student is not None:
        return student
    cycle = project.last_cycle
    promoted = cycle.damaged.checkpoint if cycle else None
    if cycle is None or promoted is None or promoted.deleted_at:
        raise RecoverError(
            "No mid-trained checkpoint waits to be distilled. Run `recover midtrain --docs DIR`, or name one with "
            "--student REF."
        )
    raise RecoverError(
        f"Cycle {cycle.number} was promoted, so no mid-trained checkpoint waits to be distilled. Begin again from "
        f"there with `--student {promoted.reference}`, or train on other documents with `recover midtrain --docs DIR`."
    )


def eval_plan(project: Project, request: Request, start: Checkpoint, student: Checkpoint | None) -> EvalPlan:
    """Without questions of its own, a distillation uses what the last mid-training behind its student was given."""
    questions, passages = store_file(project, request.questions, "questions"), None
    run = next(midtrainings(project, [student]), None) if student else None
    if questions is None and run is not None:
        files = run.inputs.questions, run.inputs.passages
        questions, passages = (relocate(project.home, Path(file)) if file else None for file in files)
        for file in filter(None, (questions, passages)):
            if not file.is_file():
                raise RecoverError(
                    f"The questions or passages of run {run.id}, {file}, are gone. Restore them, or name questions "
                    "with --questions FILE."
                )
    own, past = run.cycle if run else None, past_cycles(project, start)
    # A promoted model that is distilled again has its own cycle behind it: its questions are asked once. Those that an
    # earlier cycle was given too are asked as that one's all the same, or its knowledge would be unguarded.
    guarded = [cycle for cycle in past if cycle.questions and (cycle.cycle, cycle.questions) != (own, questions)]
    gone = {cycle for cycle in guarded if cycle.questions and not cycle.questions.is_file()}
    for cycle in guarded:
        if cycle in gone:
            log.warning(
                f"The questions of cycle {cycle.cycle}, {cycle.questions}, are gone, so the gate does not guard what "
                "it taught. Restore them, and run the command again"
            )
        elif cycle.knowledge is None and (end := project.reader.checkpoint(cycle.checkpoint)):
            command = f"recover eval {end.reference} --suite knowledge --questions {shlex.quote(str(cycle.questions))}"
            log.warning(
                f"{end.reference}, which cycle {cycle.cycle} ended with, was never measured by that cycle's questions, "
                f"so the gate does not guard what it taught. Measure it with `{command}`"
            )
    return EvalPlan(
        questions=questions,
        ifeval_data=store_file(project, request.ifeval_data, "ifeval"),
        passages=passages,
        limit=request.limit,
        secondary_limit=request.secondary_limit,
        earlier_questions=tuple(
            (cycle.cycle, cycle.questions) for cycle in guarded if cycle.questions and cycle not in gone
        ),
    )


def _held_out(conversations: Sequence[Conversation], chat: Chat) -> Sequence[Conversation]:
    """None where too few have an answer to learn from the others."""
    sample = evenly(conversations, chat, HELD_OUT)
    return sample if any(_has_answer(c, chat) for c in conversations if c not in sample) else []


def evenly(conversations: Sequence[Conversation], chat: Chat, every: int = 1) -> Sequence[Conversation]:
    """One of so many, the first with an answer; fewer where they would be more than are scored."""
    count = min(MAX_CONVERSATIONS, math.ceil(len(conversations) / every))
    ends = [i * len(conversations) // max(1, count) for i in range(count + 1)]
    firsts = (next((c for c in conversations[a:b] if _has_answer(c, chat)), None) for a, b in pairwise(ends))
    return [conversation for conversation in firsts if conversation is not None]


def store_conversations(project: Project, conversations: Sequence[Conversation], kind: str) -> Path | None:
    if not conversations:
        return None
    file = project.home / "documents" / f"{content_hash(conversations)[:32]}.{kind}.jsonl"
    if not file.is_file():
        JsonLines(file).write(conversations)
    return file


def conversations_of(project: Project, student: Checkpoint | None) -> Path | None:
    """Those that the student was last mid-trained on; what is stored of them."""
    run = next(midtrainings(project, [student] if student else []), None)
    file = relocate(project.home, Path(run.inputs.conversations)) if run and run.inputs.conversations else None
    return file if file and file.is_file() else None
