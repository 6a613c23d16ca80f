"""Answers for the mix: the clean base's sampled answers to its own prompts, trained on during mid-training.

They prevent forgetting: instruction following that is trained beside the documents need not be restored afterwards.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipelines.storage import ContentCache
from pipelines.synthetic.prompts import as_prompts
from recovery.engines import Engine, Sampling
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat
from recovery.samples import Sample
from recovery.states import FixedRows


def sample_answers(
    engine: Engine,
    chat: Chat,
    texts: Sequence[str],
    folder: Path,
    base_weights: str,
    *,
    max_new_tokens: int,
    seed: int = 0,
    keep_cut: bool = False,
) -> list[Sample]:
    """Sample the base's answers to the prompt texts; return those that ended within the limit, or all (`keep_cut`).

    Only the answer's tokens are targets, and they are soft: where a teacher is available, its distribution is the
    target. For soft labels a cut answer is as good as any: it shows how to go on, and without cut answers a base that
    seldom ends within the limit would only be shown its shortest answers.

    The answers are cached in `folder` by all inputs, `base_weights` being a hash."""
    prompts = as_prompts(texts, chat)

    def generate() -> list[list[int]]:
        generations = engine.generate([prompt.tokens for prompt in prompts], Sampling(max_new_tokens, seed=seed))
        return [g.tokens if g.finished or keep_cut else [] for g in generations]

    inputs = [base_weights, max_new_tokens, seed, *["with cut answers"] * keep_cut, *texts]
    answers = cached_answers(folder, inputs, generate)
    pairs = [(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True) if answer]
    samples = [prompt.with_reply(answer, soft_labels=True) for prompt, answer in pairs]
    if not samples:
        raise RecoverError(
            f"None of the base's answers ended within {max_new_tokens} tokens, so there are no answers for the mix. "
            "Allow longer answers (distill.max_new_tokens), or mid-train without them: --set midtrain.mix.answers=0."
        )
    return samples


def cached_answers(folder: Path, inputs: list[Any], generate: Callable[[], list[list[int]]]) -> list[list[int]]:
    """Token ids of answers; `inputs` is all that decides them."""
    return list(ContentCache(folder).get_or_write("answers", inputs, generate))


def answer_rows(answers: Sequence[Sample], share: float, tokens: int, *, seed: int = 0) -> FixedRows:
    """Rows of answers for each step, so many that `share` of all target tokens are answers and the rest `tokens`."""
    if not 0 < share < 1:
        raise RecoverError(f"The share of answers in the mix must be more than 0 and less than 1, not {share}.")
    mean_targets = sum(answer.target_count for answer in answers) / len(answers)
    rows = max(1, round(share / (1 - share) * tokens / mean_targets))
    return FixedRows(answers, rows=rows, seed=seed)
