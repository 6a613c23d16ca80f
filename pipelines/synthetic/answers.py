"""Manners kept while documents are read: the clean base's own answers to its own prompts, mixed into mid-training.

Prevention beside cure: what is rehearsed while the documents are learned need not be brought back afterwards.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipelines.files import write_atomic
from pipelines.synthetic.prompts import as_prompts
from recovery.batch import Sample
from recovery.engines import Engine, Sampling
from recovery.errors import RecoverError
from recovery.models.chat import Chat
from recovery.states import FixedRows


def sample_answers(
    engine: Engine, chat: Chat, prompts: Sequence[str], folder: Path, model: str, *, max_new_tokens: int, seed: int = 0
) -> list[Sample]:
    """The base's sampled answers that ended by themselves, as rows of which the answer alone is taught: by what the
    base might have written there, where it can be asked.

    They are kept in `folder` by what was asked, and of whom (`model`, its weights' hash), and not written twice."""
    asked = as_prompts(prompts, chat)

    def write() -> list[list[int]]:
        written = engine.generate([prompt.tokens for prompt in asked], Sampling(max_new_tokens, seed=seed))
        return [g.tokens if g.finished else [] for g in written]

    replies = cached_answers(folder, [model, max_new_tokens, seed, *prompts], write)
    rows = [prompt.with_reply(reply, soft_labels=True) for prompt, reply in zip(asked, replies, strict=True) if reply]
    if not rows:
        raise RecoverError(
            f"none of the base's answers ended within {max_new_tokens} tokens, so there is nothing to replay; "
            "allow longer answers, or mid-train without replay"
        )
    return rows


def cached_answers(folder: Path, decided_by: list[Any], write: Callable[[], list[list[int]]]) -> list[list[int]]:
    """Kept by all that decides them, and not written twice."""
    key = hashlib.sha256(json.dumps(decided_by).encode()).hexdigest()[:16]
    file = folder / f"answers-{key}.json"
    if not file.is_file():
        write_atomic(file, [json.dumps(write())])
    return list(json.loads(file.read_text(encoding="utf-8")))


def answer_rows(answers: Sequence[Sample], share: float, tokens: int, *, seed: int = 0) -> FixedRows:
    """So many answers a step that, beside `tokens` of documents, `share` of all that is taught is replay."""
    if not 0 < share < 1:
        raise RecoverError(f"the share of replay should be more than 0 and less than 1, not {share}")
    taught = sum(answer.target_count for answer in answers) / len(answers)
    rows = max(1, round(share / (1 - share) * tokens / taught))
    return FixedRows(answers, rows=rows, seed=seed)
