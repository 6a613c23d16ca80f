"""Rows that are read as they are: of documents, of texts by the base, and of a fine-tune's conversations."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from evals.suites.training_texts import CONVERSATION_WINDOW, read_conversations
from evals.suites.training_texts import encode_conversation as encode
from pipelines.documents.corpus import CorpusSnapshot
from pipelines.documents.tokenization import tokenize_documents
from pipelines.log import log
from pipelines.synthetic.base_outputs import GeneratedTexts
from pipelines.training.stage_context import Stage
from recovery.models.chat_template import Chat
from recovery.models.students import load_chat, window_of
from recovery.samples import Sample
from recovery.states import CommonTokens, Documents, FixedRows, States


def document_rows(
    stage: Stage,
    chat: Chat,
    corpora: Iterable[CorpusSnapshot | GeneratedTexts],
    rows: int,
    soft: int = 0,
    domain: str | None = None,
    use_labels: bool = False,
) -> Documents:
    settings, cache = stage.settings.midtrain, stage.project.cache.folder
    ids = [
        document
        for corpus in corpora
        for document in tokenize_documents(corpus.texts, chat.tokenizer, cache, corpus.hash)
    ]
    return Documents(
        ids,
        chat.separator,
        window=settings.window,
        rows=rows,
        seed=stage.job.seed,
        begin_id=chat.document_bos,
        soft_rows=soft,
        domain=domain,
        use_labels=use_labels,
    )


def rows_beside(
    stage: Stage,
    chat: Chat,
    corpora: Sequence[CorpusSnapshot],
    texts: Sequence[GeneratedTexts],
    vocabulary: int | None,
    *,
    use_labels: bool,
) -> list[States]:
    """Rows of the documents, of the conversations and of the base's texts beside the recipe's own rows."""
    settings, file = stage.settings.distill, stage.job.training_file
    share, of_texts = settings.documents_share if corpora or file else 0.0, settings.texts_share if texts else 0.0
    rows = list[States]()
    if settings.documents_share and not share and "distill.documents" in stage.job.given:
        log.warning(
            "No documents are read again (distill.documents): none are stored of what the student was trained on"
        )
    whole = settings.rows / (1 - share - of_texts)
    part = 0.5 if corpora and file else 1.0
    if share and file:
        rows += training_file_rows(stage, file, chat, part * share / (1 - share - of_texts))
    if share and corpora:
        rows.append(document_rows(stage, chat, corpora, max(1, round(part * share * whole)), use_labels=True))
    if texts:  # in tokens of the base, which reads them: the student may have more
        base = load_chat(stage.project.base).with_separator(chat.separator)
        rows.append(document_rows(stage, base, texts, max(1, round(of_texts * whole)), use_labels=use_labels))
    return [CommonTokens(states, vocabulary) for states in rows]


def training_file_samples(file: Path, chat: Chat, model: str, window: int) -> list[Sample]:
    """The conversations of a training file, with the assistant's tokens as targets."""
    encoded = [encode(chat, conversation, None) for conversation in read_conversations(file)]
    return conversation_samples(encoded, model, window)


def conversation_samples(
    encoded: Sequence[tuple[list[int], list[bool]]], model: str, window: int | None = None
) -> list[Sample]:
    """Tokens and targets of conversations as samples: of what the model reads, or of a window of documents.

    A conversation ends with an answer: cut within one, it would teach everything but the end."""
    longest, read = max((len(tokens) for tokens, _ in encoded), default=0), window_of(model)
    allowed = max(window, CONVERSATION_WINDOW) if window else longest
    window = min(allowed, read or allowed)
    cure = "Split them" if window == read or allowed == longest else "Raise midtrain.window, or split them"
    samples = [Sample(*up_to_an_answer(tokens, targets, window)) for tokens, targets in encoded if any(targets[1:])]
    samples = [sample for sample in samples if sample.target_count]
    if left_out := len(encoded) - len(samples):
        log.warning(
            f"{left_out:,} of {len(encoded):,} conversations are not learned: the chat template cannot render them, or "
            f"no answer ends within the first {window:,} tokens"
        )
    answers, learned = sum(sum(targets[1:]) for _, targets in encoded), sum(sample.target_count for sample in samples)
    if learned < answers:
        log.warning(
            f"{1 - learned / answers:.1%} of the tokens of all answers are not learned: they are in answers that end "
            f"behind the first {window:,} tokens of their conversations. {cure}"
        )
    return samples


def up_to_an_answer(tokens: list[int], targets: list[bool], window: int) -> tuple[list[int], list[bool]]:
    """The conversation up to its last answer that ends within the window."""
    ends = [i for i in range(1, len(targets) + 1) if targets[i - 1] and not any(targets[i : i + 1])]
    end = max((end for end in ends if end <= window), default=0)
    return tokens[:end], targets[:end]


def training_file_rows(stage: Stage, file: Path, chat: Chat, share: float) -> list[FixedRows]:
    """The conversations beside a distillation's rows; none where no answer in them can be learned.

    So many that their answers are this share of the target tokens of the recipe's own rows, if replies are half as
    long as they may be. Where prompts are long or answers short, fewer: a step reads no more of the file than it may
    write."""
    settings, window = stage.settings.distill, stage.settings.midtrain.window
    of_file = training_file_samples(file, chat, stage.project.base, window)
    samples = [replace(sample, use_labels=True) for sample in of_file]
    if not samples:
        return []
    answer = sum(sample.target_count for sample in samples) / len(samples)
    length = sum(len(sample.tokens) for sample in samples) / len(samples)
    most = settings.rows * settings.max_new_tokens / length
    rows = max(1, min(math.ceil(share * settings.rows * settings.max_new_tokens / 2 / answer), int(most)))
    return [FixedRows(samples, rows=rows, seed=stage.job.seed)]
