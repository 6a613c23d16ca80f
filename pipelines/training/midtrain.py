"""Mid-training: the student reads the new documents, beside a mix that keeps what it knows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from db.run_inputs import RunInputs
from db.views import Checkpoint
from pipelines.documents.snapshot import CorpusSnapshot
from pipelines.documents.tokenization import tokenize_documents
from pipelines.log import log
from pipelines.model_loading import open_engine
from pipelines.project.runs import run_of_stage
from pipelines.settings.schedule import scheduled, warn_of_few_steps
from pipelines.settings.schema import AUTO, fixed_answers_share
from pipelines.storage.content_cache import ContentCache
from pipelines.training.early_stopping import EarlyStopping
from pipelines.training.mix import TrainingMix
from pipelines.training.mix_search import SHARES, AnswersSearch, search_share, trial_steps
from pipelines.training.probe_results import ProbeScores
from pipelines.training.probes import MidtrainProbe
from pipelines.training.stage_context import Stage
from pipelines.training.training_run import RunResult, TrainingRun, log_event_once
from recovery.models.students import load_chat
from recovery.processes import training_state
from recovery.recipes import objective_of, recipe
from recovery.train import Plan, train

MEASURE_EVERY = 10  # steps between measurements of entropy and signal shape, which take time on a GPU


def midtrain(
    stage: Stage,
    corpus: CorpusSnapshot,
    start: Checkpoint,
    earlier: Sequence[CorpusSnapshot] = (),
    probe: MidtrainProbe | None = None,
) -> RunResult:
    """Train `start` on all tokens of the documents; `earlier` are the documents of earlier cycles."""
    stage = _scheduled_stage(stage, corpus, load_chat(start.path).tokenizer)
    settings = stage.settings.midtrain
    mix = TrainingMix.of(stage, corpus, start, earlier)
    steps = settings.steps(len(mix.documents.windows), mix.documents.rows)
    search = None
    if settings.mix.answers == AUTO:
        search = answers_search(stage, mix, steps, probe)
    share = search.share if search else fixed_answers_share(stage.settings)
    answers = mix.answers(share)
    share_in_effect = share if answers else 0.0  # a base that cannot answer may be left out
    search_json = search.as_json() if search else None
    plan, source = _plan(stage, steps), mix.source(recipe(settings.recipe), bool(answers))
    student, signal = source.load()
    log.info(
        f"Mid-training on {corpus.files} file{'s' * (corpus.files != 1)}, {mix.documents.tokens:,} tokens: "
        f"{steps} steps of {settings.rows} × {settings.window} tokens ({settings.epochs:g} passes) from "
        f"{start.reference}{mix.describe(share_in_effect)}"
    )
    warn_of_few_steps(settings, steps)
    inputs = RunInputs(
        job=stage.job.id,
        stage="midtrained",
        corpus=corpus.hash,
        questions=_path(stage.job.eval_plan.questions),
        passages=_path(stage.job.eval_plan.passages),
        mix=mix.shares(share_in_effect),
        answers_search=search_json,
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
            plan=plan,
            source=source,
            monitor=EarlyStopping(),
        )
        if search and search.tried:
            message = f"The share of answers, {search.share:g}, was chosen by trying {', '.join(search.tried)}"
            log_event_once(stage.project, run, message)
        return replace(training.run_to_end(), answers_search=search_json)


def answers_search(stage: Stage, mix: TrainingMix, steps: int, probe: MidtrainProbe | None) -> AnswersSearch:
    """Choose the share of answers by short mid-trainings; a run that was started keeps the share it has."""
    started = run_of_stage(stage.project, stage.job.id, "midtrained")
    if started and started.inputs.answers_search:
        return AnswersSearch.from_json(started.inputs.answers_search)
    if probe is None:
        default = mix.base.defaults.mix.answers
        assert default != AUTO
        log.info(f"There are too few questions to search the share of answers; taking the default, {default:g}")
        return AnswersSearch(float(default), {})
    trial = _trial(stage, mix, trial_steps(steps), probe)
    lengths = f"{len(SHARES)} short mid-trainings of {trial_steps(steps)} steps"
    log.info(f"Trying shares of answers: {', '.join(f'{share:g}' for share in SHARES)} ({lengths} of {steps})")
    _ = mix.base.answers  # a base that cannot answer is an error before anything is trained
    inputs = _search_inputs(stage, mix, trial_steps(steps), probe)
    return search_share(trial, ContentCache(stage.project.home / "cache"), inputs, trial_steps(steps))


def _trial(stage: Stage, mix: TrainingMix, steps: int, probe: MidtrainProbe) -> Callable[[float], ProbeScores]:
    def trial(share: float) -> ProbeScores:
        plan, source = _plan(stage, steps), mix.source(recipe(stage.settings.midtrain.recipe), share > 0)
        student, signal = source.load()
        states, objective = mix.states(mix.answers(share)), objective_of(source.recipe)
        with training_state(student, signal, objective, plan, source) as state:
            for _ in train(student, states, signal, objective, plan, state):
                pass
        del state  # the optimiser's, which measuring has no use for
        with open_engine(student, stage.settings.engine) as engine:
            return probe(student, engine)

    return trial


def _search_inputs(stage: Stage, mix: TrainingMix, steps: int, probe: MidtrainProbe) -> list[Any]:
    """Everything that a trial's scores depend on, besides its share."""
    settings, weights = stage.settings, stage.project.weights_id(mix.start)
    training = [settings.midtrain.model_dump(), settings.lora_rank, settings.bf16, settings.engine]
    answers = [
        stage.project.base_weights_id,
        stage.generation_seed,
        settings.distill.prompts,
        settings.distill.max_new_tokens,
    ]
    read = [corpus.hash for corpus in mix.read]
    return [weights, read, steps, stage.job.seed, training, answers, probe.key(weights)]


def _scheduled_stage(stage: Stage, corpus: CorpusSnapshot, tokenizer: Any) -> Stage:
    """The stage with the passes and the rows of a step that suit the corpus, where the settings leave them open."""
    documents = tokenize_documents(corpus.texts, tokenizer, stage.project.home / "cache", corpus.hash)
    midtrain = scheduled(stage.settings.midtrain, documents.tokens + len(documents))  # every document has an end token
    settings = stage.settings.model_copy(update={"midtrain": midtrain})
    return replace(stage, job=replace(stage.job, settings=settings))


def _plan(stage: Stage, steps: int) -> Plan:
    plan = stage.plan(steps, stage.settings.midtrain.learning_rate, warmup=min(10, steps // 10))
    return replace(plan, measure_every=MEASURE_EVERY)


def _path(file: Any) -> str | None:
    return str(file.resolve()) if file else None
