"""Which token ends a document, measured on the corpus where the names in the vocabulary leave several open."""

from collections.abc import Sequence

from db.tables import Checkpoint
from pipelines.documents.corpus import CorpusSnapshot
from pipelines.documents.tokenization import tokenize_documents
from pipelines.log import log
from pipelines.model_loading import load_frozen
from pipelines.project.runs import run_of_stage
from pipelines.training.stage_context import Stage
from recovery.engines import Engine
from recovery.engines.transformers import TransformersEngine
from recovery.models.chat_template import Chat, document_ends
from recovery.models.students import checkpoint_metadata, load_chat

SCORED_DOCUMENTS, SCORED_TOKENS = 32, 32  # by a separator: the first tokens of so many documents


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
