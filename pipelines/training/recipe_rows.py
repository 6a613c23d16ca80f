"""The rows that a recipe with a teacher learns: the student's rollouts, and replies that were written beforehand."""

from collections.abc import Sequence

from db.views import Checkpoint
from pipelines.model_loading import open_subject
from pipelines.project.weights_hash import weights_id
from pipelines.synthetic.answers import cached_answers
from pipelines.synthetic.chat_prompts import ChatPrompt, accepted_by_checks
from pipelines.training.stage_context import Stage
from pipelines.training.stage_teachers import Teachers
from recovery.engines import Engine, Sampling
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat
from recovery.recipes import Recipe
from recovery.samples import Sample
from recovery.states import Accepted, FixedRows, Mixture, Prompt, Rollouts, States


def recipe_states(
    stage: Stage,
    chosen: Recipe,
    engine: Engine,
    given_prompts: Sequence[ChatPrompt],
    prompts: list[Prompt],
    answers: Sequence[Sample],
) -> States:
    """The student's rollouts, ready-made answers, or a mixture by the recipe's on-policy fraction."""
    settings, seed = stage.settings.distill, stage.job.seed
    on_policy_rows = round(chosen.on_policy_fraction * settings.rows)
    parts: list[States] = []
    if on_policy_rows:
        rollouts = Rollouts(
            prompts,
            engine,
            rows=on_policy_rows,
            group=chosen.group,
            max_new_tokens=settings.max_new_tokens,
            seed=seed,
        )
        passes = accepted_by_checks(given_prompts, load_chat(stage.project.base).text) if chosen.right_only else None
        parts.append(Accepted(rollouts, passes) if passes else rollouts)
    if on_policy_rows < settings.rows:
        parts.append(FixedRows(answers, rows=settings.rows - on_policy_rows, seed=seed))
    return Mixture(*parts)


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
