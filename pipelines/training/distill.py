"""Distillation: restore the behaviour of a clean teacher, or learn what a context shows it, by any of the recipes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from db.tables import Checkpoint, RunInputs
from pipelines.documents.snapshot import CorpusSnapshot
from pipelines.jobs.teacher_choice import Itself
from pipelines.log import log
from pipelines.model_loading import open_engine
from pipelines.project.runs import past_cycles
from pipelines.settings.schema import LATER_CYCLE_WARM_START
from pipelines.settings.sources import EngineName
from pipelines.synthetic.chat_prompts import ChatPrompt
from pipelines.training.clean_replies import clean_replies
from pipelines.training.early_stopping import EarlyStopping
from pipelines.training.frontier import Frontier
from pipelines.training.mix import document_rows
from pipelines.training.probe_results import ProbeFunction
from pipelines.training.recipe_inputs import chosen_recipe
from pipelines.training.recipe_rows import open_writer, recipe_states, replies_beforehand, reward_by_checks
from pipelines.training.stage_context import Stage
from pipelines.training.stage_teachers import Teachers, TrainingSource
from pipelines.training.state_folders import has_started
from pipelines.training.training_file_rows import training_file_rows
from pipelines.training.training_run import RunResult, TrainingRun
from pipelines.training.warm_start import WarmStart, WarmStartPlan, warm_start
from recovery.engines import Engine
from recovery.models.adapters import base_of
from recovery.models.chat_template import Chat
from recovery.models.students import Student, load_chat
from recovery.recipes import Recipe, objective_of, signal_of
from recovery.self_teachers import EmaTeacher
from recovery.signals import Labels
from recovery.states import CommonTokens, Mixture, States
from recovery.teachers import Teacher, check_tokens

MakeProbe = Callable[[Student, Engine, bool], ProbeFunction]  # the last: whether it measures retention


def distill(
    stage: Stage,
    start: Checkpoint,
    teachers: Teachers,
    given_prompts: Sequence[ChatPrompt],
    make_probe: MakeProbe | None,
    corpora: Sequence[CorpusSnapshot] = (),
    lift: dict[str, Any] | None = None,
) -> RunResult:
    """Train `start` towards its teachers; ends early when probes say so. The corpora can be read again meanwhile."""
    settings, chosen = stage.settings.distill, chosen_recipe(stage.settings.distill)
    chat = load_chat(start.path)
    prompts = teachers.prompts(given_prompts, chat, stage.job.seed, chosen.template)
    steps = min(settings.steps, settings.max_steps or settings.steps)
    # Answers are sampled while no other model is in memory.
    answers = replies_beforehand(stage, start, teachers, chosen, chat, given_prompts, prompts[: steps * settings.rows])
    clean = clean_replies(stage, chosen, teachers, prompts) if steps else None
    student = stage.load_student(start)
    # Where the teachers' answers are the labels, the teachers' weights are needed for writing them alone.
    teacher: Teacher | None = None
    if steps and chosen.scores_with_teacher:
        teacher = teachers.load(student, bf16=stage.settings.bf16)
        if student.vocabulary:
            check_tokens((prompt.teacher_prompt or prompt.tokens for prompt in prompts), student.vocabulary, chat)
    inputs = RunInputs(job=stage.job.id, stage="recovered", teacher=str(teachers), lift=lift)
    has_probe = make_probe is not None and settings.probe_every > 0
    with (
        stage.recorded_run("distill", steps, inputs) as run,
        open_engine(student, _engine_name(stage, chosen, has_probe, steps)) as engine,
        open_writer(chosen, teachers, student) as writer,
    ):
        probe, probe_in_training = (
            make_probe(student, engine, with_retention) if make_probe and has_probe else None
            for with_retention in (False, settings.keep > 0)
        )
        warm = WarmStart()
        if not has_started(stage.project, run):
            is_repair = stage.job.eval_plan.probe_all
            plan = replace(warm_start_plan(stage, student, start), rejected=is_repair)
            warm = warm_start(student, probe, stage.settings, plan, stage.project.base)
            # It teaches something new, or the gate has rejected where it begins: then a probe does not end it at once.
            if not chosen.restores or is_repair:
                warm = replace(warm, stop_reason="")
        if steps and teachers.instead == Itself("ema"):
            teacher = EmaTeacher(student, settings.ema_decay)  # it begins with the weights after the warm start
        if steps:
            about = f"at most {steps} steps, {len(prompts)} prompts"
            log.info(f"Distilling {start.reference} with {teachers} as teacher: {about}")
        training = TrainingRun(
            stage=stage,
            run=run,
            role="recovered",
            start=start,
            student=student,
            states=Mixture(
                recipe_states(stage, chosen, engine, given_prompts, prompts, answers, writer),
                *_reread(stage, chat, corpora, student.vocabulary),
            )
            if steps
            else Mixture(),
            signal=signal_of(chosen, teacher, reward_by_checks(chosen, given_prompts, chat)) if steps else Labels(None),
            objective=objective_of(chosen),
            plan=stage.plan(steps, settings.learning_rate, warmup=min(5, steps // 5)),
            source=TrainingSource(
                start.path,
                stage.adapter,
                stage.settings.bf16,
                chosen,
                teachers if chosen.scores_with_teacher else None,
            ),
            monitor=EarlyStopping(
                settings,
                probe_in_training,
                warm.best_knowledge,
                until_probes_hold=chosen.restores,
                clean=clean,
            ),
            frontier=Frontier(settings.keep),
            warm_start=warm,
            average=teacher if isinstance(teacher, EmaTeacher) else None,
        )
        return training.run_to_end()


def _engine_name(stage: Stage, chosen: Recipe, has_probe: bool, steps: int) -> EngineName:
    """An engine that generates nothing should take no memory."""
    has_rollouts = steps > 0 and chosen.on_policy_fraction > 0
    return stage.settings.engine if has_rollouts or has_probe else "transformers"


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


def _reread(stage: Stage, chat: Chat, corpora: Sequence[CorpusSnapshot], vocabulary: int | None) -> list[States]:
    """Rows of the documents, or of a training file, beside the recipe's own rows."""
    settings = stage.settings.distill
    share, rows = settings.documents_share, list[States]()
    if share and stage.job.training_file:
        rows += training_file_rows(stage.job.training_file, chat, settings, stage.job.seed)
    elif share and corpora:
        count = max(1, round(share / (1 - share) * settings.rows))
        rows.append(document_rows(stage, chat, corpora, count, use_labels=True))
    return [CommonTokens(states, vocabulary) for states in rows]
