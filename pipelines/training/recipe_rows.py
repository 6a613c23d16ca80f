"""The rows that a recipe learns: the student's rollouts, what is made of them, and replies written beforehand."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from db.tables import Checkpoint
from pipelines.model_loading import device, frozen_dtype, open_engine, open_subject
from pipelines.project.checkpoints import weights_id
from pipelines.synthetic.answers import cached_answers
from pipelines.synthetic.chat_prompts import ChatPrompt, accepted_by_checks
from pipelines.training.stage_context import Stage
from pipelines.training.stage_teachers import Teachers
from recovery.engines import Engine, Sampling
from recovery.models.chat_template import Chat
from recovery.models.students import Student, load_chat
from recovery.recipes import Recipe
from recovery.rewritten_rollouts import PrivilegedPairs, TeacherContinuations, with_swapped_prompts
from recovery.samples import Sample
from recovery.states import Accepted, FixedRows, Mixture, Prompt, Rollouts, States
from recovery.teachers import FrozenTeacher

Writer = tuple[Engine, int]  # of the teacher: its engine and its number of parameters


def recipe_states(
    stage: Stage,
    chosen: Recipe,
    engine: Engine,
    chat_prompts: Sequence[ChatPrompt],
    prompts: list[Prompt],
    answers: Sequence[Sample],
    writer: Writer | None = None,
) -> States:
    """The student's rollouts, ready-made answers, or a mixture by the recipe's on-policy fraction.

    In a mixture, a step's rollouts and answers are to different prompts: both take them from one order."""
    settings, seed = stage.settings.distill, stage.job.seed
    on_policy_rows = round(chosen.on_policy_fraction * settings.rows)
    answer_rows = settings.rows - on_policy_rows
    parts: list[States] = []
    if on_policy_rows:
        prompts = prompts[: len(answers)] if answers else prompts
        drawn = Rollouts(
            with_swapped_prompts(prompts) if chosen.estimator == "privileged" else prompts,
            engine,
            rows=on_policy_rows,
            group=chosen.group,
            max_new_tokens=settings.max_new_tokens,
            seed=seed,
            after=answer_rows,
        )
        parts.append(_rewritten(drawn, chosen, chat_prompts, load_chat(stage.project.base), writer, seed))
    if answer_rows:
        parts.append(FixedRows(answers, rows=answer_rows, seed=seed, before=on_policy_rows // chosen.group))
    return Mixture(*parts)


def _rewritten(
    rollouts: Rollouts, chosen: Recipe, chat_prompts: Sequence[ChatPrompt], chat: Chat, writer: Writer | None, seed: int
) -> States:
    if chosen.continued:
        assert writer is not None
        min_tokens, max_tokens = chosen.continued
        return TeacherContinuations(rollouts, *writer, min_tokens=min_tokens, max_tokens=max_tokens, seed=seed)
    if chosen.estimator == "privileged":
        return PrivilegedPairs(rollouts)
    return Accepted(rollouts, accepted_by_checks(chat_prompts, chat.text)) if chosen.right_only else rollouts


def reward_by_checks(
    chosen: Recipe, chat_prompts: Sequence[ChatPrompt], chat: Chat
) -> Callable[[Sample], float] | None:
    """1 for a reply that passes the check of its prompt, 0 for others; None for a recipe without a reward."""
    if not chosen.needs_reward:
        return None  # then `checks` of a file may mean something else
    passes = accepted_by_checks(chat_prompts, chat.text)
    return lambda sample: float(passes(sample))


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
        return [Sample(*chat.conversation([*p.messages, *p.reply], p.tools)) for p in chat_prompts]
    sampling = Sampling(settings.max_new_tokens, settings.temperature, seed=stage.job.seed)

    def sample(model: str, prompts: list[Prompt]) -> list[Sample]:
        tokens = [prompt.teacher_prompt or prompt.tokens for prompt in prompts]

        def generate() -> list[list[int]]:
            with open_subject(model, stage.settings.engine) as subject:
                return [reply.tokens for reply in subject.engine.generate(tokens, sampling)]

        temperature = [sampling.temperature] * (sampling.temperature != 1)
        inputs = [weights_id(model), "whole", sampling.max_new_tokens, sampling.seed, *temperature, tokens]
        replies = cached_answers(stage.project.home / "cache", inputs, generate)
        return [prompt.with_reply(reply) for prompt, reply in zip(prompts, replies, strict=True)]

    return sample(start.path, prompts) if chosen.data == "start" else teachers.answers(prompts, sample)
