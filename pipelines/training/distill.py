"""Distillation: restore the behaviour of a clean teacher on what the student itself writes."""

from collections.abc import Callable, Sequence

from db.run_inputs import RunInputs
from db.views import Checkpoint
from pipelines.documents.snapshot import CorpusSnapshot
from pipelines.log import log
from pipelines.model_loading import device, open_engine, open_subject
from pipelines.project.past_cycles import past_cycles
from pipelines.project.weights_hash import weights_id
from pipelines.settings.schema import LATER_CYCLE_WARM_START
from pipelines.settings.sources import EngineName
from pipelines.synthetic.answers import cached_answers
from pipelines.training.early_stopping import EarlyStopping
from pipelines.training.mix import document_rows
from pipelines.training.probe_results import ProbeFunction
from pipelines.training.stage_context import Stage
from pipelines.training.stage_teachers import Teachers
from pipelines.training.training_run import RunResult, TrainingRun, has_started
from pipelines.training.warm_start import WarmStart, WarmStartPlan, warm_start
from recovery.engines import Engine, Sampling
from recovery.models.adapters import base_of
from recovery.models.chat_template import Chat
from recovery.models.students import Student, load_chat
from recovery.recipes import Recipe, objective_of, recipe, signal_of
from recovery.samples import Sample
from recovery.states import FixedRows, Mixture, Prompt, Rollouts, States

MakeProbe = Callable[[Student, Engine], ProbeFunction]


def distill(
    stage: Stage,
    start: Checkpoint,
    teachers: Teachers,
    prompt_texts: list[str],
    make_probe: MakeProbe | None,
    corpora: Sequence[CorpusSnapshot] = (),
) -> RunResult:
    """Train `start` towards its teachers; ends early when probes say so. The corpora can be read again meanwhile."""
    settings, chosen = stage.settings.distill, recipe(stage.settings.distill.recipe)
    chat = load_chat(start.path)
    prompts = teachers.prompts(prompt_texts, chat, stage.job.seed)
    steps = min(settings.steps, settings.max_steps or settings.steps)
    # Answers are sampled while no other model is in memory.
    answers = _teacher_answers(stage, teachers, chosen, prompts[: steps * settings.rows])
    student = stage.load_student(start)
    # Where the teachers' answers are the labels, the teachers' weights are needed for writing them alone.
    teacher = teachers.load(student, device()) if chosen.estimator != "labels" else None
    inputs = RunInputs(job=stage.job.id, stage="recovered", teacher=str(teachers))
    has_probe = make_probe is not None and settings.probe_every > 0
    with (
        stage.recorded_run("distill", steps, inputs) as run,
        open_engine(student, _engine_name(stage, chosen, has_probe)) as engine,
    ):
        probe = make_probe(student, engine) if make_probe and has_probe else None
        warm = WarmStart()
        if not has_started(stage.project, run):
            plan = warm_start_plan(stage, student, start)
            warm = warm_start(student, probe, stage.settings, plan, stage.project.base)
        log.info(
            f"Distilling {start.reference} with {teachers} as teacher: at most {steps} steps, {len(prompts)} prompts"
        )
        training = TrainingRun(
            stage=stage,
            run=run,
            role="recovered",
            start=start,
            student=student,
            states=Mixture(_states(stage, chosen, engine, prompts, answers), *_reread(stage, chat, corpora)),
            signal=signal_of(chosen, teacher),
            objective=objective_of(chosen),
            plan=stage.plan(steps, settings.learning_rate, warmup=min(5, steps // 5)),
            monitor=EarlyStopping(settings, probe, warm.best_knowledge),
            warm_start=warm,
        )
        return training.run_to_end()


def _engine_name(stage: Stage, chosen: Recipe, has_probe: bool) -> EngineName:
    """An engine that generates nothing should take no memory."""
    return stage.settings.engine if chosen.on_policy_fraction or has_probe else "transformers"


def warm_start_plan(stage: Stage, student: Student, start: Checkpoint) -> WarmStartPlan:
    """Towards the weights that mid-training began with, if recorded; for an adapter, towards the model below it.

    A model that read documents alone lost much, and moves far. One that read a mix lost little, and moves only for
    what earlier cycles taught: once, before anything is distilled into it."""
    project = stage.project
    lineage, below = project.reader.lineage(start.id), student.adapter_base
    index = next((index for index, ancestor in enumerate(lineage) if ancestor.role == "midtrained"), len(lineage))
    origin = lineage[index + 1] if index + 1 < len(lineage) else None
    if below and not base_of(start.path):
        return WarmStartPlan(None, new_adapter=True)
    to = (lambda: below) if below else (lambda: project.verify(origin).path) if origin else None
    if origin is None or _read_documents_alone(stage, lineage[index]):
        return WarmStartPlan(to)
    if index == 0 and not below and past_cycles(project, origin):
        return WarmStartPlan(to, LATER_CYCLE_WARM_START, always=True)
    if stage.settings.distill.warm_start == "default":
        log.info("No warm start by default: the documents were read beside the clean base's outputs (--warm-start)")
    return WarmStartPlan(to, 0.0)


def _read_documents_alone(stage: Stage, midtrained: Checkpoint) -> bool:
    """Whether nothing that the clean base wrote was read beside the documents."""
    run = stage.project.reader.run(midtrained.run_id) if midtrained.run_id is not None else None
    mix = (run.inputs.mix if run else None) or {}
    return not (mix.get("answers") or mix.get("texts"))


def _states(stage: Stage, chosen: Recipe, engine: Engine, prompts: list[Prompt], answers: Sequence[Sample]) -> States:
    """The student's rollouts, the teachers' answers, or a mixture by the recipe's on-policy fraction."""
    settings, seed = stage.settings.distill, stage.job.seed
    on_policy_rows = round(chosen.on_policy_fraction * settings.rows)
    parts: list[States] = []
    if on_policy_rows:
        parts.append(
            Rollouts(
                prompts,
                engine,
                rows=on_policy_rows,
                group=chosen.group,
                max_new_tokens=settings.max_new_tokens,
                seed=seed,
            )
        )
    if on_policy_rows < settings.rows:
        parts.append(FixedRows(answers, rows=settings.rows - on_policy_rows, seed=seed))
    return Mixture(*parts)


def _reread(stage: Stage, chat: Chat, corpora: Sequence[CorpusSnapshot]) -> list[States]:
    """Rows of the documents beside the recipe's own rows."""
    settings = stage.settings.distill
    if not settings.documents or not corpora:
        return []
    rows = max(1, round(settings.documents / (1 - settings.documents) * settings.rows))
    return [document_rows(stage, chat, corpora, rows, use_labels=True)]


def _teacher_answers(stage: Stage, teachers: Teachers, chosen: Recipe, prompts: list[Prompt]) -> list[Sample]:
    """The teachers' sampled answers, where the recipe has states that the student did not write."""
    settings = stage.settings.distill
    if round(chosen.on_policy_fraction * settings.rows) == settings.rows:
        return []
    sampling = Sampling(settings.max_new_tokens, seed=stage.job.seed)

    def sample(teacher: str, prompts: list[Prompt]) -> list[Sample]:
        tokens = [prompt.tokens for prompt in prompts]

        def generate() -> list[list[int]]:
            clock, engine = stage.project.clock, stage.settings.engine
            with clock.stage("write/replies"), open_subject(teacher, engine) as subject:
                return [reply.tokens for reply in subject.engine.generate(tokens, sampling)]

        inputs = [weights_id(teacher), "whole", sampling.max_new_tokens, sampling.seed, tokens]
        replies = cached_answers(stage.project.home / "cache", inputs, generate)
        return [prompt.with_reply(reply) for prompt, reply in zip(prompts, replies, strict=True)]

    return teachers.answers(prompts, sample)
