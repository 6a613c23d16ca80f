"""Distillation: restore the behaviour of a clean teacher, or learn what a context shows it, by any of the recipes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache as cache_result
from functools import partial
from random import Random
from typing import Any

from db.tables import Checkpoint
from evals.subject import Subject
from pipelines.evaluation.evaluation_plan import midtrainings
from pipelines.log import log
from pipelines.model_loading import device, frozen_dtype, load_trained, open_engine, open_subject
from pipelines.project.project import Project
from pipelines.synthetic.base_outputs import DISTILL_SEED, BaseOutputs, GeneratedTexts
from pipelines.synthetic.passage_prompts import EARLIER_DOMAIN
from pipelines.synthetic.prompts import ChatPrompt, share_of_checks
from pipelines.teacher_choice import Itself
from pipelines.training.document_rows import conversation_samples, rows_beside
from pipelines.training.probes import DistillProbe, EarlyStopping, clean_replies
from pipelines.training.recipe_inputs import chosen_recipe
from pipelines.training.stage_context import Stage, Teachers
from pipelines.training.training_run import RunResult, TrainingRun, has_started
from pipelines.training.warm_start import WarmStart, warm_start, warm_start_plan
from recovery.engines import Engine, Sampling
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat, document_ends
from recovery.models.students import Student, load_chat
from recovery.recipes import Recipe, signal_of
from recovery.samples import Sample
from recovery.signals import Labels
from recovery.states import Accepted, FixedRows, Mixture, Prompt, Rollouts, States, TeacherContinuations
from recovery.teachers import EmaTeacher, FrozenTeacher, Teacher

ANSWER_BLOCK = 256  # prompts that are answered together

Writer = tuple[Engine, int]  # of the teacher: its engine and its number of parameters


def distill(
    stage: Stage,
    start: Checkpoint,
    teachers: Teachers,
    given_prompts: Sequence[ChatPrompt],
    probe: DistillProbe | None,
    lift: dict[str, Any] | None = None,
) -> RunResult:
    """Train `start` towards its teachers, and on documents that it has read; ends early when probes say so."""
    settings, chosen = stage.settings.distill, chosen_recipe(stage.settings.distill)
    chat, steps = load_chat(start.path), settings.most_steps
    corpora = stage.read_by(start) if steps and settings.documents_share else []
    prompts = teachers.prompts(given_prompts, chat, stage.job.seed, chosen.template)
    if steps and (chosen.scores_with_teacher or chosen.continued or chosen.data == "teacher"):
        prompts = teachers.readable(prompts, chat)
    # Answers and texts are sampled while no other model is in memory.
    texts = _texts(stage, start, chosen, chat) if steps and settings.texts_share else []
    answers = replies_beforehand(stage, start, teachers, chosen, chat, given_prompts, prompts[: steps * settings.rows])
    clean = clean_replies(stage, chosen, teachers, prompts) if steps else None
    student = load_trained(start.path, stage.adapter, bf16=stage.settings.bf16)
    # Where the teachers' answers are the labels, the teachers' weights are needed for writing them alone.
    teacher: Teacher | None = None
    if steps and chosen.scores_with_teacher:
        teacher = teachers.load(student, bf16=stage.settings.bf16)
    is_rejected = stage.job.eval_plan.probe_all or is_of_rejected_cycle(stage.project, start)
    has_rollouts = steps > 0 and chosen.on_policy_fraction > 0
    with (
        stage.recorded_run("distill", steps, stage.distillation_inputs(teachers, given_prompts, lift)) as run,
        # An engine that generates nothing should take no memory.
        open_engine(student, stage.settings.engine if has_rollouts or probe else "transformers") as engine,
        open_writer(chosen, teachers, student) as writer,
    ):
        monitor = EarlyStopping(
            settings,
            probe.on(student, engine) if probe else None,
            until_probes_hold=stage.restores,
            clean=clean,
            may_collapse=chosen.estimator != "labels" or chosen.on_policy_fraction > 0,
        )
        warm = WarmStart()
        if not has_started(stage.project, run):
            plan = replace(warm_start_plan(stage, student, start), rejected=is_rejected)
            warm = warm_start(student, monitor, stage.settings, plan)
            # It teaches something new, or the gate has rejected where it begins: then a probe does not end it at once.
            if not stage.restores or is_rejected:
                warm = replace(warm, stop_reason="")
        if steps and teachers.instead == Itself("ema"):
            teacher = EmaTeacher(student, settings.ema_decay)  # it begins with the weights after the warm start
        if steps:
            # Where nothing is rewarded, `checks` of a file may mean something else. Evaluations judge the same text.
            share = share_of_checks(given_prompts, Subject(engine, chat).reply_text) if chosen.needs_checks else None
            about = f"at most {steps} steps, {len(prompts)} prompts"
            log.info(f"Distilling {start.reference} with {teachers} as teacher: {about}")
            states = Mixture(
                recipe_states(stage, chosen, engine, prompts, answers, writer, share),
                *rows_beside(stage, chat, corpora, texts, student.vocabulary, use_labels=not chosen.compares),
            )
            signal = signal_of(chosen, teacher, share)
        else:
            states, signal = Mixture(), Labels(None)
        training = TrainingRun(
            stage=stage,
            run=run,
            role="recovered",
            start=start,
            student=student,
            states=states,
            signal=signal,
            plan=stage.plan(steps, settings.learning_rate, warmup=min(5, steps // 5)),
            source=stage.source(start, chosen, teachers if chosen.scores_with_teacher else None),
            monitor=monitor,
            warm_start=warm.as_json(),
            stopped=warm.stop_reason,
            average=teacher if isinstance(teacher, EmaTeacher) else None,
        )
        return training.run_to_end()


def is_of_rejected_cycle(project: Project, checkpoint: Checkpoint) -> bool:
    """Whether its cycle was rejected: by the gate, on more items than a probe has, or by a person. A later attempt that
    was interrupted has opened it again."""
    decisions = [p.decision for p in project.reader.promotions(project.id) if p.cycle and p.cycle == checkpoint.cycle]
    return decisions[:1] == ["rejected"]


def replies_beforehand(
    stage: Stage,
    start: Checkpoint,
    teachers: Teachers,
    chosen: Recipe,
    chat: Chat,
    chat_prompts: Sequence[ChatPrompt],
    prompts: list[Prompt],
) -> list[Sample]:
    """The rows that are no rollouts: replies of the data, or sampled from the teachers or from the student's start."""
    settings = stage.settings.distill
    if round(chosen.on_policy_fraction * settings.rows) == settings.rows:
        return []
    if chosen.data == "conversations":
        encoded = [prompt.as_conversation(chat) for prompt in chat_prompts]
        samples = conversation_samples(encoded, start.path)
        if not samples:
            raise RecoverError("No conversation has an answer that can be learned. Give others, or split long ones.")
        return samples
    sampling = Sampling(settings.max_new_tokens, settings.temperature, seed=stage.job.seed)

    def sample(model: str, prompts: list[Prompt]) -> list[Sample]:
        tokens = [prompt.teacher_prompt or prompt.tokens for prompt in prompts]
        weights = stage.project.model_id(model)
        inputs = [weights, "whole or cut", sampling.max_new_tokens, sampling.seed, sampling.temperature]
        cache, replies = stage.project.cache, list[tuple[list[int], bool]]()
        with ExitStack() as stack:
            opened = cache_result(lambda: stack.enter_context(open_subject(model, stage.settings.engine)))

            def generate(block: list[list[int]], seed: int) -> list[tuple[list[int], bool]]:
                written = opened().engine.generate(block, replace(sampling, seed=seed))
                return [(reply.tokens, not reply.finished) for reply in written]

            # In blocks, so that a longer list of the same prompts begins with the same replies.
            for first in range(0, len(tokens), ANSWER_BLOCK):
                block, seed = tokens[first : first + ANSWER_BLOCK], Random(f"{sampling.seed}/{first}").getrandbits(31)
                replies += cache.get_or_write("answers", [*inputs, first, block], partial(generate, block, seed))
        ends = [[end] for end in chat.reply_ends(of_turns=True)]  # of turns; openings of documents go on as documents
        return [
            prompt.with_reply(reply, truncated=is_cut or (prompt.domain != EARLIER_DOMAIN and reply[-1:] not in ends))
            for prompt, (reply, is_cut) in zip(prompts, replies, strict=True)
        ]

    answers = sample(start.path, prompts) if chosen.data == "start" else teachers.answers(prompts, sample)
    return those_that_end(answers) if chosen.estimator == "labels" else answers


def those_that_end(answers: list[Sample]) -> list[Sample]:
    """As labels, answers that were cut, or that end with the separator, would teach everything but their end."""
    whole = [answer for answer in answers if not answer.truncated]
    if answers and not whole:
        longest = max(answer.target_count for answer in answers)
        log.warning(
            f"All answers are cut, after {longest:,} tokens at most, or end as documents do, so none teaches an end. "
            "Raise distill.max_new_tokens"
        )
    elif len(whole) < len(answers):
        log.info(
            f"{len(answers) - len(whole)} of {len(answers)} answers are cut or end as documents do, and are left out"
        )
    return whole or answers


@contextmanager
def open_writer(chosen: Recipe, teachers: Teachers, student: Student) -> Iterator[Writer | None]:
    """The teacher, where it continues what the student began; it never reads a token that it lacks."""
    if not chosen.continued:
        yield None
        return
    path = teachers.main.path
    teacher = FrozenTeacher(path, dtype=frozen_dtype(path), device=device())
    teacher.bind_student(student)
    with open_engine(teacher.model, "transformers") as engine:
        yield engine, teacher.model.parameters


def recipe_states(
    stage: Stage,
    chosen: Recipe,
    engine: Engine,
    prompts: list[Prompt],
    answers: Sequence[Sample],
    writer: Writer | None = None,
    share: Callable[[Sample], float] | None = None,
) -> States:
    """The student's rollouts, ready-made answers, or a mixture by the recipe's on-policy fraction.

    `share` is that of its checks that a rollout passes, where only right ones are learned.
    In a mixture, a step's rollouts and answers are to different prompts: both take them from one order."""
    settings, seed = stage.settings.distill, stage.job.seed
    on_policy_rows = round(chosen.on_policy_fraction * settings.rows)
    answer_rows = settings.rows - on_policy_rows
    parts: list[States] = []
    if on_policy_rows:
        prompts = prompts[: len(answers)] if answers else prompts
        rollouts = Rollouts(
            prompts,
            engine,
            rows=on_policy_rows,
            group=chosen.group,
            max_new_tokens=settings.max_new_tokens,
            seed=seed,
            after=answer_rows,
            of_turns=chosen.needs_checks,
        )
        if chosen.continued:
            assert writer is not None
            least, most = chosen.continued
            parts.append(TeacherContinuations(rollouts, *writer, min_tokens=least, max_tokens=most, seed=seed))
        elif chosen.right_only:
            assert share is not None
            parts.append(Accepted(rollouts, lambda sample: share(sample) == 1))
        else:
            parts.append(rollouts)
    if answer_rows:
        parts.append(FixedRows(answers, rows=answer_rows, seed=seed, before=on_policy_rows // chosen.group))
    return Mixture(*parts)


def _texts(stage: Stage, start: Checkpoint, chosen: Recipe, chat: Chat) -> list[GeneratedTexts]:
    midtraining = next(midtrainings(stage.project, [start]), None)
    has_read_texts = midtraining is not None and (midtraining.inputs.mix or {}).get("texts", 0) > 0
    # As labels, the same texts again would be learned by heart.
    more_seed = DISTILL_SEED if has_read_texts and not chosen.compares else 0
    separator = chat.separator if len(document_ends(chat.tokenizer)) > 1 else None  # as in mid-training
    base = BaseOutputs(stage.project, stage.settings, stage.generation_seed + more_seed, separator)
    return base.texts(is_default="distill.texts" not in stage.job.given)
