"""What the clean model's replies are like, by which a collapse is told from a recovery: measured once, and cached."""

from collections.abc import Sequence
from dataclasses import asdict
from random import Random
from typing import Any

from pipelines.log import log
from pipelines.model_loading import open_subject
from pipelines.project.checkpoints import weights_id
from pipelines.storage import ContentCache
from pipelines.training.stage_context import Stage
from pipelines.training.stage_teachers import Teachers
from recovery.collapse import CleanReplies
from recovery.engines import Generation, Sampling
from recovery.recipes import Recipe
from recovery.states import Prompt

CLEAN_REPLIES = 64  # shares of so many are exact to 0.06


def clean_replies(stage: Stage, chosen: Recipe, teachers: Teachers, prompts: Sequence[Prompt]) -> CleanReplies | None:
    """Of the teachers, to some of the prompts as they read them, with the rollouts' limit of tokens.

    None where nothing is rolled out or scored, or no teacher is a model that is loaded here and stays as it is. It
    loads the models, so it is called while no other is in memory."""
    if teachers.instead or not (chosen.on_policy_fraction and chosen.scores_with_teacher):
        return None
    seed, limit = stage.job.seed, stage.settings.distill.max_new_tokens
    some = Random(seed).sample(prompts, min(CLEAN_REPLIES, len(prompts)))
    tokens = {
        path: [some[i].teacher_prompt or some[i].tokens for i in indices]
        for path, indices in teachers.by_prompt(some).items()
    }
    sampling = Sampling(limit, seed=seed)

    def measure() -> dict[str, Any]:
        log.info(f"Sampling {len(some)} replies of {teachers}, to tell a collapse from a recovery")
        replies: list[Generation] = []
        for path, of_teacher in tokens.items():
            with open_subject(path, "transformers") as subject:  # vLLM would take longer to start than this
                replies += subject.engine.generate(of_teacher, sampling)
        return asdict(CleanReplies.of(replies))

    inputs = [limit, seed, *([weights_id(path), of_teacher] for path, of_teacher in tokens.items())]
    cache = ContentCache(stage.project.home / "cache")
    clean = CleanReplies(**cache.get_or_write("clean-replies", inputs, measure))
    log.info(f"  Replies of {teachers}: {100 * clean.truncated:.0f} % are cut at {limit:,} tokens")
    return clean
