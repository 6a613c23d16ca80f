"""Rows that are read as they are: of documents, of texts by the base, and of a fine-tune's conversations.

Which token ends a document is measured on the corpus, where the names in the vocabulary leave several open."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from db.tables import Checkpoint
from evals.suites.training_texts import CONVERSATION_WINDOW, read_conversations
from evals.suites.training_texts import encode_conversation as encode
from pipelines.documents.corpus import CorpusSnapshot
from pipelines.documents.tokenization import tokenize_documents
from pipelines.log import log
from pipelines.model_loading import load_frozen
from pipelines.project.runs import run_of_stage
from pipelines.synthetic.base_outputs import GeneratedTexts
from pipelines.training.stage_context import Stage
from recovery.engines import Engine
from recovery.engines.transformers import TransformersEngine
from recovery.models.chat_template import Chat, document_ends
from recovery.models.students import checkpoint_metadata, load_chat, window_of
from recovery.samples import Sample
from recovery.states import CommonTokens, Documents, FixedRows, States

SCORED_DOCUMENTS, SCORED_TOKENS = 32, 32  # by a separator: the first tokens of so many documents


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


def measured_separator(stage: Stage, corpus: CorpusSnapshot, start: Checkpoint) -> int | None:
    """The token after which the base finds the corpus likeliest; None where the vocabulary decides.

    A model keeps the separator that it was trained with, and a run the one that it began with."""
    chat, started = load_chat(start.path), run_of_stage(stage.project, stage.job.id, "midtrained")
    candidates = document_ends(chat.tokenizer)
    if len(candidates) == 1:
        return None
    if "separator" in checkpoint_metadata(start.path):
        return chat.separator
    if started and started.inputs.separator is not None:
        return started.inputs.separator
    cache = stage.project.cache

    def measure() -> list[float]:
        documents = tokenize_documents(corpus.texts, chat.tokenizer, cache.folder, corpus.hash)
        engine = TransformersEngine(load_frozen(stage.project.base))
        return likelihoods(engine, chat, candidates, documents[:: -(-len(documents) // SCORED_DOCUMENTS)])

    inputs = [stage.project.base_weights_id, corpus.hash, candidates, chat.document_bos]
    scores = dict(zip(candidates, cache.get_or_write("separator", inputs, measure), strict=True))
    best = max(candidates, key=lambda candidate: scores[candidate])
    named = ", ".join(f"{chat.tokenizer.decode([token])} {score:.3f}" for token, score in scores.items())
    log.info(f"Documents end with {chat.tokenizer.decode([best])}; log-prob of a token after each candidate: {named}")
    return best


def likelihoods(
    engine: Engine, chat: Chat, candidates: Sequence[int], documents: Sequence[Sequence[int]]
) -> list[float]:
    """The mean log-prob of the documents' first tokens after each candidate, with the BOS between where there is one:
    it follows the right candidate in pre-training."""
    bos = [] if chat.document_bos is None else [chat.document_bos]
    scores = []
    for candidate in candidates:
        begin = [] if candidate in bos else bos
        openings = [begin + list(document[:SCORED_TOKENS]) for document in documents if len(document)]
        rows = engine.logprobs([[*bos, candidate, *opening] for opening in openings])
        means = [sum(row[-len(opening) :]) / len(opening) for row, opening in zip(rows, openings, strict=True)]
        scores.append(sum(means) / max(1, len(means)))
    return scores
