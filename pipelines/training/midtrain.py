"""Mid-training: the student reads new documents and conversations, beside a mix that keeps what it knows.

Of a conversation only the assistant's tokens are targets. A pass goes once over all documents and all conversations,
and a step reads of each what is their share of the tokens.

The mix has documents of earlier cycles, and what the clean base wrote: texts, and answers to its own prompts. The base
gives the soft labels of its own texts and answers, the last promoted model those of earlier documents.

In context, the clean base, which reads the passages, teaches the same model, which does not. The rows are those of a
distillation: half of them the student's rollouts, half the teacher's replies, to questions about the passages and to
their openings. A share of ordinary prompts, which the base judges without a context, keeps instruction following. From
the second cycle on, the last promoted model judges what is about passages.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice
from random import Random
from typing import Any

from db.tables import Checkpoint
from evals.contamination import remove_contaminated
from pipelines.documents.corpus import CorpusSnapshot
from pipelines.documents.tokenization import tokenize_documents
from pipelines.log import log
from pipelines.model_loading import open_engine
from pipelines.project.runs import run_of_stage
from pipelines.settings.defaults import scheduled, warn_of_few_steps
from pipelines.settings.schema import AUTO, Midtrain, split_rows
from pipelines.storage import HASH_DIGITS
from pipelines.synthetic.base_outputs import BaseOutputs, answer_rows
from pipelines.synthetic.passage_prompts import (
    ALTERNATIVES,
    EARLIER_DOMAIN,
    as_prefix_prompts,
    document_prefixes,
    opening_prompts,
    passages_in,
    write_passage_questions,
)
from pipelines.synthetic.prompts import as_prompts
from pipelines.synthetic.questions import LEAKED_WORDS
from pipelines.training.context_lift import check_lift
from pipelines.training.distill import recipe_states, replies_beforehand
from pipelines.training.document_rows import (
    document_rows,
    training_file_samples,
)
from pipelines.training.probes import EarlyStopping, clean_replies
from pipelines.training.recipe_inputs import (
    RecipeFiles,
    as_distillation,
    check_prompts,
    chosen_recipe,
    contextual_prompts,
    without_contaminated,
)
from pipelines.training.separator import measured_separator
from pipelines.training.stage_context import PROMPT_RUN_LENGTH, Stage, Teachers
from pipelines.training.training_run import RunResult, TrainingRun
from recovery.distributed import processes
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat
from recovery.recipes import recipe
from recovery.samples import Sample
from recovery.states import CommonTokens, FixedRows, Mixture, Prompt, States

MEASURE_EVERY = 10  # steps between measurements of entropy and signal shape, which take time on a GPU


def midtrain(
    stage: Stage, corpus: CorpusSnapshot | None, start: Checkpoint, earlier: Sequence[CorpusSnapshot] = ()
) -> RunResult:
    """Train `start` on the documents, the job's conversations or both; `earlier` are documents of earlier cycles."""
    chat, separator = load_chat(start.path), measured_separator(stage, corpus, start) if corpus else None
    if separator is not None:
        chat = chat.with_separator(separator)
    base = BaseOutputs(stage.project, stage.settings, stage.generation_seed, separator)
    given, asked = stage.job.given, stage.settings.midtrain.mix
    texts = base.texts(is_default="midtrain.mix.texts" not in given) if asked.texts else []
    window = stage.settings.midtrain.window
    chats = training_file_samples(file, chat, start.path, window) if (file := stage.job.training_file) else []
    if not corpus and not chats:
        raise RecoverError(
            "No conversation has an answer that the chat template can render and that ends within a row. Give others, "
            "or raise midtrain.window."
        )
    chat_tokens = sum(len(sample.tokens) for sample in chats)
    stage = scheduled_stage(stage, corpus, chat, chat_tokens, has_texts=bool(texts), has_earlier=bool(earlier))
    settings, mix = stage.settings.midtrain, stage.settings.midtrain.mix

    shares = mix.earlier if earlier else 0.0, mix.texts if texts else 0.0
    earlier_rows, text_rows = split_rows(settings.step_rows, shares)
    rows = settings.step_rows - earlier_rows - text_rows
    for name, asked_for, count in zip(("earlier", "texts"), shares, (earlier_rows, text_rows), strict=True):
        if asked_for and not count:
            log.warning(
                f"A step of {settings.step_rows} rows (midtrain.rows) has none for midtrain.mix.{name} = "
                f"{asked_for:g}; raise one of them"
            )
    documents = document_rows(stage, chat, [corpus], rows) if corpus else None
    windows = len(documents.windows) if documents else 0
    of_chats = chat_tokens / settings.window  # as many windows
    states, targets = list[States](), (earlier_rows + text_rows) * settings.window
    # Each is read equally often: of the smaller part a step may have no row, of the larger one it has one at least.
    share = rows * windows / (windows + of_chats), rows * of_chats / (windows + of_chats)
    of_all_chats = share[1] * settings.window / chat_tokens if chats else 0.0
    larger = share[0] if windows >= of_chats else of_all_chats * len(chats)
    times = max(1.0, 1 / larger)
    if documents:
        documents.rows = times * share[0]
        targets += round(documents.rows * documents.tokens / windows)
        states.append(documents)
    if chats:
        targets += round(times * of_all_chats * sum(sample.target_count for sample in chats))
        states.append(FixedRows(chats, rows=times * of_all_chats * len(chats), seed=stage.job.seed))
    beside = list[str]()
    if earlier_rows:
        soft = -(-earlier_rows // 2)  # half of them, rounded up; the others have their tokens as labels
        by_labels = recipe(settings.recipe).dft  # it is for conversations
        states.append(
            document_rows(stage, chat, earlier, earlier_rows, soft=soft, domain=EARLIER_DOMAIN, use_labels=by_labels)
        )
        corpora = f"{len(earlier)} earlier corp{'us' if len(earlier) == 1 else 'ora'}"
        softly = f", {soft} of them with soft labels" if settings.soft_labels else ""
        beside.append(f"; {earlier_rows} of {settings.step_rows} rows from {corpora}{softly}")
    if text_rows:
        states.append(document_rows(stage, chat, texts, text_rows, soft=text_rows))
        beside.append(f"; {text_rows} of {settings.step_rows} rows from texts by the clean base")
    answers = mix_answers(stage, base) if mix.answers else []
    if answers:
        states.append(answer_rows(answers, mix.answers, targets, seed=stage.job.seed))
        beside.append(f"; {mix.answers:.0%} answers by the clean base")

    teachers = soft_label_teachers(stage, start, by_base=bool(text_rows or answers), of_earlier=bool(earlier_rows))
    source = stage.source(start, recipe(settings.recipe), teachers, chat.separator)
    student, signal = source.load()
    steps = settings.steps(windows + of_chats, times * rows)
    read = [f"{corpus.files} file{'s' * (corpus.files != 1)}"] if corpus else []
    read += [f"{documents.tokens:,} tokens"] if documents else []
    read += [f"{len(chats):,} conversations"] if chats else []
    log.info(
        f"Mid-training on {', '.join(read)}: "
        f"{steps} steps of {settings.rows} × {settings.window} tokens ({settings.epochs:g} passes) from "
        f"{start.reference}{''.join(beside)}"
    )
    warn_of_few_steps(settings, steps)
    inputs = stage.midtraining_inputs(
        separator=chat.separator,
        mix={
            "answers": mix.answers if answers else 0.0,
            "texts": text_rows / settings.step_rows,
            "earlier": earlier_rows / settings.step_rows,
        },
    )
    plan = stage.plan(steps, settings.learning_rate, warmup=min(10, steps // 10))
    with stage.recorded_run("midtrain", steps, inputs) as run:
        training = TrainingRun(
            stage=stage,
            run=run,
            role="midtrained",
            start=start,
            student=student,
            states=CommonTokens(Mixture(*states), student.vocabulary),
            signal=signal,
            plan=replace(plan, measure_every=MEASURE_EVERY),
            source=source,
            monitor=EarlyStopping(),
        )
        return training.run_to_end()


def mix_answers(stage: Stage, base: BaseOutputs) -> list[Sample]:
    """The base's answers to its own prompts; to none that the student is asked about the documents."""
    answers = base.answers(is_default="midtrain.mix.answers" not in stage.job.given)
    prompts = [answer.prompt or "" for answer in answers]
    contaminated = remove_contaminated(prompts, stage.questions, PROMPT_RUN_LENGTH).contaminated
    if contaminated:
        log.info(f"Left out {len(contaminated):,} of the base's prompts, which ask what the documents are measured by")
    return [answer for answer in answers if answer.prompt not in contaminated]


def scheduled_stage(
    stage: Stage,
    corpus: CorpusSnapshot | None,
    chat: Chat,
    more_tokens: int = 0,
    *,
    has_texts: bool = True,
    has_earlier: bool = False,
) -> Stage:
    """The stage with the passes and the rows of a step that suit what is read, where the settings leave them open.

    An interrupted one keeps those that it began with, whatever the number of its processes is now."""
    begun = run_of_stage(stage.project, stage.job.id, "midtrained")
    begun_with = Midtrain.model_validate(begun.settings["midtrain"]) if begun else stage.settings.midtrain
    if begun and AUTO not in (begun_with.rows, begun_with.epochs):  # in context it is stored as it was given
        return stage.with_settings(stage.settings.model_copy(update={"midtrain": begun_with}))
    tokens = more_tokens
    if corpus:
        documents = tokenize_documents(corpus.texts, chat.tokenizer, stage.project.cache.folder, corpus.hash)
        tokens += documents.tokens + len(documents) * chat.tokens_around_document
    midtrain = scheduled(stage.settings.midtrain, tokens, has_texts=has_texts, has_earlier=has_earlier)
    if stage.settings.midtrain.rows == AUTO and midtrain.step_rows < processes():
        midtrain = midtrain.model_copy(update={"rows": processes()})
    return stage.with_settings(stage.settings.model_copy(update={"midtrain": midtrain}))


def soft_label_teachers(stage: Stage, start: Checkpoint, *, by_base: bool, of_earlier: bool) -> Teachers | None:
    """Of rows that the base wrote, and of rows of earlier documents; None where there are neither."""
    if not stage.settings.midtrain.soft_labels or not (by_base or of_earlier):
        return None
    if not by_base:
        return Teachers(start)
    return Teachers(stage.project.clean, {EARLIER_DOMAIN: start} if of_earlier else {})


def midtrain_in_context(
    stage: Stage, corpus: CorpusSnapshot, start: Checkpoint, earlier: Sequence[CorpusSnapshot] = ()
) -> RunResult:
    """Train `start` on what the clean base says of the documents' passages when it reads them."""
    as_distilled = stage.with_settings(as_distillation(stage.settings))
    settings, seed, chat = as_distilled.settings.distill, stage.job.seed, load_chat(start.path)
    chosen = chosen_recipe(settings)
    if (separator := measured_separator(stage, corpus, start)) is not None:
        chat = chat.with_separator(separator)
    passages = passages_in(corpus.texts)
    # In a cycle, the file is what the teacher of its distillation reads.
    file = stage.job.teacher_context if stage.job.command == "midtrain" else None
    if file:
        written, questions = {}, RecipeFiles(teacher_context=file).read(settings, seed)
    else:
        written = _written_questions(stage, corpus, passages)
        questions = contextual_prompts([("A question", row) for row in written["questions"]], settings, seed)
    questions = without_contaminated(questions, stage.questions, LEAKED_WORDS)
    if not questions:
        raise RecoverError(f"No question on the documents is left to learn from. {ALTERNATIVES}")
    check_prompts(questions, settings, chat, start.path)
    lift = check_lift(stage.project, start, questions, as_distilled.settings, seed, selected=file is None)

    about_passages = [question.tokenized(chat, chosen.template) for question in questions]
    about_passages += opening_prompts(passages, chat, seed, shuffled=settings.shuffle_contexts)
    teachers = Teachers(stage.project.clean)
    if start.id != stage.project.clean.id:  # it is the last promoted model, which judges what is about passages
        teachers = replace(teachers, by_domain={EARLIER_DOMAIN: start})
        about_passages = [replace(prompt, domain=EARLIER_DOMAIN) for prompt in about_passages]
    prompts = with_ordinary_prompts(stage, chat, about_passages, earlier)
    schedule = scheduled_stage(stage, corpus, chat).settings.midtrain
    assert schedule.epochs != AUTO
    steps = math.ceil(schedule.epochs * len(prompts) / settings.rows)  # so that a pass learns from every prompt once
    steps = min(steps, schedule.max_steps or steps)
    answers = replies_beforehand(
        as_distilled, start, teachers, chosen, chat, questions, prompts[: steps * settings.rows]
    )
    clean = clean_replies(as_distilled, chosen, teachers, prompts)
    source = stage.source(start, chosen, teachers, chat.separator)
    student, signal = source.load()
    log.info(
        f"Mid-training in context on {corpus.files} file{'s' * (corpus.files != 1)}: {steps} steps of {settings.rows} "
        f"rows from {start.reference}; {len(about_passages):,} of {len(prompts):,} prompts are about its passages"
    )
    warn_of_few_steps(stage.settings.midtrain, steps, "distill.rows")
    bare = [prompt for prompt in prompts if prompt.teacher_prompt is None]
    of_earlier = sum(prompt.domain == EARLIER_DOMAIN for prompt in bare)
    ordinary = len(bare) - of_earlier  # which the base answers without a context
    taught = {
        "passages": len(passages),
        "questions": len(questions),
        "openings": len(passages),
        "with_questions": len({question.context for question in questions}),
    }
    inputs = stage.midtraining_inputs(
        teacher=f"base (and {start.reference} for passages)" if teachers.by_domain else "base",
        lift=lift,
        separator=chat.separator,
        mix={"answers": ordinary / len(prompts), "texts": 0.0, "earlier": of_earlier / len(prompts)},
        passages_taught=taught | ({"written": written["counts"]} if written else {}),
    )
    with stage.recorded_run("midtrain", steps, inputs) as run, open_engine(student, stage.settings.engine) as engine:
        training = TrainingRun(
            stage=stage,
            run=run,
            role="midtrained",
            start=start,
            student=student,
            states=recipe_states(as_distilled, chosen, engine, prompts, answers),
            signal=signal,
            plan=stage.plan(steps, stage.settings.midtrain.learning_rate, warmup=min(10, steps // 10)),
            source=source,
            monitor=EarlyStopping(settings.model_copy(update={"max_minutes": None, "max_flops": None}), clean=clean),
        )
        return training.run_to_end()


def _written_questions(stage: Stage, corpus: CorpusSnapshot, passages: Sequence[str]) -> dict[str, Any]:
    """The base's own questions on the passages, and how many it wrote; none that the student is measured by."""
    project, seed, questions = stage.project, stage.job.seed, stage.questions

    def write() -> dict[str, Any]:
        log.info(f"The clean base writes questions on {len(passages):,} passages")
        with BaseOutputs(project, stage.settings, seed).open_base() as subject:
            return write_passage_questions(subject, passages, questions, seed)

    kind = f"passage-questions-{corpus.hash[:HASH_DIGITS]}"
    return dict(project.cache.get_or_write(kind, [project.base_weights_id, corpus.hash, seed, questions], write))


def with_ordinary_prompts(
    stage: Stage, chat: Chat, about_passages: Sequence[Prompt], earlier: Sequence[CorpusSnapshot]
) -> list[Prompt]:
    """All prompts: beside those about passages the base's own, and openings of earlier documents; shuffled, so that
    each part is a sample."""
    settings, seed = stage.settings.midtrain, stage.job.seed
    left = 1 - settings.ordinary_prompts - (settings.mix.earlier if earlier else 0.0)
    count = round(settings.ordinary_prompts / left * len(about_passages))
    written = BaseOutputs(stage.project, stage.settings, stage.generation_seed).prompts() if count else []
    ordinary = remove_contaminated(written, stage.questions, PROMPT_RUN_LENGTH).clean
    prompts = [*about_passages, *as_prompts(islice(cycle(ordinary), count), chat)]
    if earlier:
        prefixes = document_prefixes(earlier, round(settings.mix.earlier / left * len(about_passages)), seed)
        prompts += as_prefix_prompts(remove_contaminated(prefixes, stage.questions).clean, chat)
    Random(seed).shuffle(prompts)
    return prompts
