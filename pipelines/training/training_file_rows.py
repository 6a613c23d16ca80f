"""The conversations that a fine-tune was trained on, learned again while it is distilled."""

import math
from collections.abc import Sequence
from pathlib import Path

from evals.suites.training_texts import encode_conversation as encode
from evals.suites.training_texts import read_conversations
from pipelines.log import log
from pipelines.settings.schema import Distill
from recovery.models.chat_template import Chat, Message
from recovery.samples import Sample
from recovery.states import FixedRows


def training_file_rows(file: Path, chat: Chat, settings: Distill, seed: int) -> list[FixedRows]:
    """The rows of every step; none where no conversation has an answer that can be learned."""
    conversations = read_conversations(file)
    samples = _samples(chat, conversations)
    if left_out := len(conversations) - len(samples):
        log.warning(
            f"{left_out:,} of {len(conversations):,} conversations of the training file are not learned again: the "
            "chat template cannot render them, or no answer is within the first 2,048 tokens"
        )
    return [FixedRows(samples, rows=_rows(samples, settings), seed=seed)] if samples else []


def _samples(chat: Chat, conversations: Sequence[list[Message]]) -> list[Sample]:
    encoded = [encode(chat, messages) for messages in conversations]
    return [Sample(tokens, targets, use_labels=True) for tokens, targets in encoded if any(targets[1:])]


def _rows(samples: Sequence[Sample], settings: Distill) -> int:
    """So many that their answers are `settings.documents` of a step's target tokens, if replies are half as long as
    they may be. Where prompts are long or answers short, fewer: a step reads no more of the file than it may write."""
    answer = sum(sample.target_count for sample in samples) / len(samples)
    share = settings.documents_share / (1 - settings.documents_share)
    most = settings.rows * settings.max_new_tokens / _mean_length(samples)
    return max(1, min(math.ceil(share * settings.rows * settings.max_new_tokens / 2 / answer), int(most)))


def _mean_length(samples: Sequence[Sample]) -> float:
    return sum(len(sample.tokens) for sample in samples) / len(samples)
