"""The rows that a recipe learns: the student's rollouts, what is made of them, and replies written beforehand."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from db.views import Checkpoint
from pipelines.model_loading import load_frozen, open_engine, open_subject
from pipelines.project.weights_hash import weights_id
from pipelines.synthetic.answers import cached_answers
from pipelines.synthetic.chat_prompts import ChatPrompt, accepted_by_checks
from pipelines.training.stage_context import Stage
from pipelines.training.stage_teachers import Teachers
from recovery.engines import Engine, Sampling
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat
from recovery.recipes import Recipe
from recovery.rewritten_rollouts import Continued, WithAndWithout, swapped
from recovery.samples import Sample
from recovery.states import Accepted, FixedRows, Mixture, Prompt, Rollouts, States

Writer = tuple[Engine, int]  # of the teacher: its engine and its number of parameters


def recipe_states(
    stage: Stage,
    chosen: Recipe,
    engine: Engine,
    given_prompts: Sequence[ChatPrompt],
    prompts: list[Prompt],
    answers: Sequence[Sample],
    writer: Writer | None = None,
) -> States:
    """The student's rollouts, ready-made answers, or a mixture by the recipe's on-policy fraction."""
    settings, seed = stage.settings.distill, stage.job.seed
    on_policy_rows = round(chosen.on_policy_fraction * settings.rows)
    parts: list[States] = []
    if on_policy_rows:
        drawn = Rollouts(
            swapped(prompts) if chosen.estimator == "privileged" else prompts,
            engine,
            rows=on_policy_rows,
            group=chosen.group,
            max_new_tokens=settings.max_new_tokens,
            seed=seed,
        )
        parts.append(_rewritten(drawn, chosen, given_prompts, load_chat(stage.project.base), writer, seed))
    if on_policy_rows < settings.rows:
        parts.append(FixedRows(answers, rows=settings.rows - on_policy_rows, seed=seed))
    return Mixture(*parts)


def _rewritten(
    rollouts: Rollouts, chosen: Recipe, given: Sequence[ChatPrompt], chat: Chat, writer: Writer | None, seed: int
) -> States:
    if chosen.continued and writer is not None:
        fewest, most = chosen.continued
        return Continued(rollouts, *writer, fewest=fewest, most=most, seed=seed)
    if chosen.estimator == "privileged":
        return WithAndWithout(rollouts)
    return Accepted(rollouts, accepted_by_checks(given, chat.text)) if chosen.right_only else rollouts


def reward_by_checks(given: Sequence[ChatPrompt], chat: Chat) -> Callable[[Sample], float]:
    """1 for a reply that passes the check of its prompt, 0 for others."""
    passes = accepted_by_checks(given, chat.text)
    return lambda sample: float(passes(sample))


@contextmanager
def open_writer(chosen: Recipe, teachers: Teachers) -> Iterator[Writer | None]:
    """The teacher, where it continues what the student began."""
    if not chosen.continued:
        yield None
        return
    model = load_frozen(teachers.main.path)
    with open_engine(model, "transformers") as engine:
        yield engine, model.parameters


def replies_beforehand(
    stage: Stage,
    start: Checkpoint,
    teachers: Teachers,
    chosen: Recipe,
    chat: Chat,
    given_prompts: Sequence[ChatPrompt],
    prompts: list[Prompt],
) -> list[Sample]:
    """The rows that are no rollouts: replies of the data, or sampled from the teachers or from the student's start."""
    settings = stage.settings.distill
    if round(chosen.on_policy_fraction * settings.rows) == settings.rows:
        return []
    if chosen.data == "conversations":
        return [Sample(*chat.conversation([*p.messages, *p.reply], p.tools)) for p in given_prompts]
    sampling = Sampling(settings.max_new_tokens, settings.temperature, seed=stage.job.seed)

    def sample(model: str, prompts: list[Prompt]) -> list[Sample]:
        tokens = [prompt.teacher_prompt or prompt.tokens for prompt in prompts]

        def generate() -> list[list[int]]:
            clock, engine = stage.project.clock, stage.settings.engine
            with clock.stage("write/replies"), open_subject(model, engine) as subject:
                return [reply.tokens for reply in subject.engine.generate(tokens, sampling)]

        temperature = [sampling.temperature] * (sampling.temperature != 1)
        inputs = [weights_id(model), "whole", sampling.max_new_tokens, sampling.seed, *temperature, tokens]
        replies = cached_answers(stage.project.home / "cache", inputs, generate)
        return [prompt.with_reply(reply) for prompt, reply in zip(prompts, replies, strict=True)]

    return sample(start.path, prompts) if chosen.data == "start" else teachers.answers(prompts, sample)
