"""Mid-training: the student reads new documents and conversations, beside a mix that keeps what it knows.

Of a conversation only the assistant's tokens are targets. A pass goes once over all documents and all conversations,
and a step reads of each what is their share of the tokens.

The mix has documents of earlier cycles, and what the clean base wrote: texts, and answers to its own prompts. The base
gives the soft labels of its own texts and answers, the last promoted model those of earlier documents.
"""

from collections.abc import Sequence
from dataclasses import replace

from db.tables import Checkpoint
from pipelines.documents.corpus import CorpusSnapshot
from pipelines.documents.tokenization import tokenize_documents
from pipelines.log import log
from pipelines.settings.defaults import scheduled, warn_of_few_steps
from pipelines.settings.schema import Midtrain, split_rows
from pipelines.synthetic.base_outputs import BaseOutputs, answer_rows
from pipelines.synthetic.gap_questions import gap_questions
from pipelines.synthetic.passage_prompts import EARLIER_DOMAIN
from pipelines.training.document_rows import (
    conversation_samples,
    document_rows,
    measured_separator,
    training_file_samples,
)
from pipelines.training.probes import EarlyStopping
from pipelines.training.stage_context import Stage, Teachers
from pipelines.training.training_run import RunResult, TrainingRun
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat
from recovery.recipes import recipe
from recovery.states import CommonTokens, FixedRows, Mixture, States

MEASURE_EVERY = 10  # steps between measurements of entropy and signal shape, which take time on a GPU


def midtrain(
    stage: Stage, corpus: CorpusSnapshot | None, start: Checkpoint, earlier: Sequence[CorpusSnapshot] = ()
) -> RunResult:
    """Train `start` on the documents, the job's conversations or both; `earlier` are documents of earlier cycles."""
    chat, separator = load_chat(start.path), measured_separator(stage, corpus, start) if corpus else None
    if separator is not None:
        chat = chat.with_separator(separator)
    base = BaseOutputs(stage.project, stage.settings, stage.generation_seed, separator)
    texts_share = stage.settings.midtrain.mix.texts
    texts = base.texts(is_default=texts_share == base.defaults.mix.texts) if texts_share else []
    chats = training_file_samples(file, chat) if (file := stage.job.training_file) else []
    questions = gap_questions(corpus.texts) if corpus and stage.settings.midtrain.gap_questions else []
    chats += conversation_samples(questions, chat, "questions with gaps")
    if not corpus and not chats:
        raise RecoverError("No conversation has an answer that the chat template can render. Give others.")
    chat_tokens = sum(len(sample.tokens) for sample in chats)
    stage = scheduled_stage(stage, corpus, chat, chat_tokens, has_texts=bool(texts))
    settings, mix = stage.settings.midtrain, stage.settings.midtrain.mix

    shares = mix.earlier if earlier else 0.0, mix.texts if texts else 0.0
    earlier_rows, text_rows = split_rows(settings.step_rows, shares)
    rows = settings.step_rows - earlier_rows - text_rows
    documents = document_rows(stage, chat, [corpus], rows) if corpus else None
    windows = len(documents.windows) if documents else 0
    of_chats = -(-chat_tokens // settings.window)  # the windows that they would fill
    states, targets = list[States](), (earlier_rows + text_rows) * settings.window
    if documents:
        documents.rows = max(1, round(rows * windows / (windows + of_chats)))
        targets += documents.rows * settings.window
        states.append(documents)
    if chats:
        in_step = rows * of_chats / (windows + of_chats) * settings.window / chat_tokens  # the share of all chats
        targets += round(in_step * sum(sample.target_count for sample in chats))
        states.append(FixedRows(chats, rows=max(1, round(in_step * len(chats))), seed=stage.job.seed))
    if earlier_rows:
        soft = _soft_earlier_rows(earlier_rows)
        states.append(document_rows(stage, chat, earlier, earlier_rows, soft=soft, domain=EARLIER_DOMAIN))
    if text_rows:
        states.append(document_rows(stage, chat, texts, text_rows, soft=text_rows))
    answers = base.answers() if mix.answers else []
    if answers:
        states.append(answer_rows(answers, mix.answers, targets, seed=stage.job.seed))
    answers_share = mix.answers if answers else 0.0

    teachers = soft_label_teachers(stage, start, by_base=bool(text_rows or answers), of_earlier=bool(earlier_rows))
    source = stage.source(start, recipe(settings.recipe), teachers, chat.separator)
    student, signal = source.load()
    steps = settings.steps(windows + of_chats, rows)
    read = [f"{corpus.files} file{'s' * (corpus.files != 1)}"] if corpus else []
    read += [f"{documents.tokens:,} tokens"] if documents else []
    read += [f"{len(chats) - len(questions):,} conversations"] if file else []
    read += [f"{len(questions):,} questions on names and numbers"] if questions else []
    log.info(
        f"Mid-training on {', '.join(read)}: "
        f"{steps} steps of {settings.rows} × {settings.window} tokens ({settings.epochs:g} passes) from "
        f"{start.reference}{_read_beside(settings, len(earlier), earlier_rows, text_rows, answers_share)}"
    )
    warn_of_few_steps(settings, steps)
    inputs = stage.midtraining_inputs(
        separator=chat.separator,
        mix={
            "answers": answers_share,
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


def scheduled_stage(
    stage: Stage, corpus: CorpusSnapshot | None, chat: Chat, more_tokens: int = 0, *, has_texts: bool = True
) -> Stage:
    """The stage with the passes and the rows of a step that suit what is read, where the settings leave them open."""
    tokens = more_tokens
    if corpus:
        documents = tokenize_documents(corpus.texts, chat.tokenizer, stage.project.cache.folder, corpus.hash)
        tokens += documents.tokens + len(documents)  # every document has an end token
    midtrain = scheduled(stage.settings.midtrain, tokens, has_texts=has_texts)
    settings = stage.settings.model_copy(update={"midtrain": midtrain})
    return replace(stage, job=replace(stage.job, settings=settings))


def soft_label_teachers(stage: Stage, start: Checkpoint, *, by_base: bool, of_earlier: bool) -> Teachers | None:
    """Of rows that the base wrote, and of rows of earlier documents; None where there are neither."""
    if not stage.settings.midtrain.soft_labels or not (by_base or of_earlier):
        return None
    if not by_base:
        return Teachers(start)
    return Teachers(stage.project.clean, {EARLIER_DOMAIN: start} if of_earlier else {})


def _soft_earlier_rows(rows: int) -> int:
    """Half of them, rounded up; the others have their tokens as labels."""
    return -(-rows // 2)


def _read_beside(settings: Midtrain, corpora: int, earlier_rows: int, text_rows: int, answers: float) -> str:
    parts = []
    if earlier_rows:
        soft = f", {_soft_earlier_rows(earlier_rows)} of them with soft labels" if settings.soft_labels else ""
        plural = "us" if corpora == 1 else "ora"
        parts.append(f"{earlier_rows} of {settings.step_rows} rows from {corpora} earlier corp{plural}{soft}")
    if text_rows:
        parts.append(f"{text_rows} of {settings.step_rows} rows from texts by the clean base")
    if answers:
        parts.append(f"{answers:.0%} answers by the clean base")
    return "".join(f"; {part}" for part in parts)
