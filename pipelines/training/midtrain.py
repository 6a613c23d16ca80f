"""Mid-training: the student reads the new documents, beside a mix that keeps what it knows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from db.tables import Checkpoint, RunInputs
from pipelines.documents.snapshot import CorpusSnapshot
from pipelines.documents.tokenization import tokenize_documents
from pipelines.log import log
from pipelines.settings.schedule import scheduled, warn_of_few_steps
from pipelines.training.early_stopping import EarlyStopping
from pipelines.training.mix import TrainingMix
from pipelines.training.separator import measured_separator
from pipelines.training.stage_context import Stage
from pipelines.training.training_run import RunResult, TrainingRun
from recovery.models.students import load_chat
from recovery.recipes import objective_of, recipe

MEASURE_EVERY = 10  # steps between measurements of entropy and signal shape, which take time on a GPU


def midtrain(
    stage: Stage, corpus: CorpusSnapshot, start: Checkpoint, earlier: Sequence[CorpusSnapshot] = ()
) -> RunResult:
    """Train `start` on all tokens of the documents; `earlier` are the documents of earlier cycles."""
    stage = _scheduled_stage(stage, corpus, load_chat(start.path).tokenizer)
    settings = stage.settings.midtrain
    mix = TrainingMix.of(stage, corpus, start, earlier, measured_separator(stage, corpus, start))
    steps = settings.steps(len(mix.documents.windows), mix.documents.rows)
    answers = mix.answers(settings.mix.answers)
    share = settings.mix.answers if answers else 0.0  # a base that cannot answer may be left out
    source = mix.source(recipe(settings.recipe), bool(answers))
    plan = stage.plan(steps, settings.learning_rate, warmup=min(10, steps // 10))
    student, signal = source.load()
    log.info(
        f"Mid-training on {corpus.files} file{'s' * (corpus.files != 1)}, {mix.documents.tokens:,} tokens: "
        f"{steps} steps of {settings.rows} × {settings.window} tokens ({settings.epochs:g} passes) from "
        f"{start.reference}{mix.describe(share)}"
    )
    warn_of_few_steps(settings, steps)
    inputs = RunInputs(
        job=stage.job.id,
        stage="midtrained",
        corpus=corpus.hash,
        questions=_path(stage.job.eval_plan.questions),
        passages=_path(stage.job.eval_plan.passages),
        separator=mix.chat.separator,
        mix=mix.shares(share),
        paraphrases=mix.paraphrase_counts,
    )
    with stage.recorded_run("midtrain", steps, inputs) as run:
        training = TrainingRun(
            stage=stage,
            run=run,
            role="midtrained",
            start=start,
            student=student,
            states=mix.states(answers),
            signal=signal,
            objective=objective_of(source.recipe),
            plan=replace(plan, measure_every=MEASURE_EVERY),
            source=source,
            monitor=EarlyStopping(),
        )
        return training.run_to_end()


def _scheduled_stage(stage: Stage, corpus: CorpusSnapshot, tokenizer: Any) -> Stage:
    """The stage with the passes and the rows of a step that suit the corpus, where the settings leave them open."""
    documents = tokenize_documents(corpus.texts, tokenizer, stage.project.home / "cache", corpus.hash)
    midtrain = scheduled(stage.settings.midtrain, documents.tokens + len(documents))  # every document has an end token
    settings = stage.settings.model_copy(update={"midtrain": midtrain})
    return replace(stage, job=replace(stage.job, settings=settings))


def _path(file: Any) -> str | None:
    return str(file.resolve()) if file else None
