"""What mid-training in context will compute: questions, replies with the passages, and the steps of a distillation."""

import math
from collections.abc import Callable, Iterator

from pipelines.estimates.work import PROMPT, Generating, Loading, Scoring, StageWork, Training, Work
from pipelines.jobs.job import Job
from pipelines.settings.schema import AUTO, Midtrain
from pipelines.synthetic.prompts import MAX_PROMPT_TOKENS
from pipelines.synthetic.questions.generate import MAX_ANSWER_TOKENS, MAX_REPLY_TOKENS
from pipelines.training.clean_replies import CLEAN_REPLIES
from recovery.recipes import recipe

PASSAGE_TOKENS = 200  # of an average passage


def in_context_stages(
    job: Job,
    midtrain: Midtrain,
    passages: int,
    lengths: tuple[float, float],
    share_left: Callable[[int], float],
    *,
    has_prompts: bool,
) -> Iterator[StageWork]:
    """With one question on each passage, of two that are answered; `lengths` are those of a prompt and of a reply."""
    distill, (prompt_tokens, reply_tokens) = job.settings.distill, lengths
    limit, rows = distill.max_new_tokens, min(passages, job.settings.distill.probe_items)
    if job.command != "midtrain" or job.teacher_context is None:
        written = Generating(passages, passages * PASSAGE_TOKENS, MAX_REPLY_TOKENS)
        graded = Generating(4 * passages, 2 * passages * PASSAGE_TOKENS, MAX_ANSWER_TOKENS)
        yield StageWork("write/questions", f"writing questions on {passages:,} passages", [Loading(), written, graded])
    lift = Generating(2 * rows, rows * PASSAGE_TOKENS, limit)
    yield StageWork("lift", "measuring what the context gives the teacher", [Loading(), lift])
    if midtrain.ordinary_prompts and not has_prompts:
        name = f"writing {distill.prompts:,} prompts"
        yield StageWork("write/prompts", name, [Loading(), writing_prompts(distill.prompts)])
    passage_share = 1 - midtrain.ordinary_prompts
    prompts = round(2 * passages / passage_share)
    assert midtrain.epochs != AUTO
    steps = math.ceil(midtrain.epochs * prompts / distill.rows)
    steps = min(steps, midtrain.max_steps or steps)
    prompts = min(prompts, steps * distill.rows)
    replies = Generating(prompts, prompts * (prompt_tokens + passage_share * PASSAGE_TOKENS), limit)
    yield StageWork("write/replies", f"writing {prompts:,} answers", [Loading(), replies])
    left, on_policy = share_left(steps) * steps, round(recipe(midtrain.recipe).on_policy_fraction * distill.rows)
    parts: list[Work] = [
        *sampling_clean_replies(prompt_tokens, limit),
        Loading(2),
        Training(left, 0.0, distill.rows * (prompt_tokens + reply_tokens)),
        Scoring(left * distill.rows * passage_share * PASSAGE_TOKENS),
        Generating(on_policy, on_policy * prompt_tokens, limit, calls=left),
    ]
    yield StageWork("midtrain", "mid-training", parts)


def sampling_clean_replies(prompt_tokens: float, limit: int) -> list[Work]:
    """By which a collapse is told from a recovery."""
    return [Loading(), Generating(CLEAN_REPLIES, CLEAN_REPLIES * prompt_tokens, limit)]


def writing_prompts(count: int) -> Work:
    """A quarter more are written than are needed, since some are dropped."""
    return Generating(count * 5 // 4 + 8, 10, MAX_PROMPT_TOKENS, PROMPT)
