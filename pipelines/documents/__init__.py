"""Read documents of any common format: deduplicated, in a fixed order, never all in memory."""

from pipelines.documents.corpus import Corpus, read_corpus
from pipelines.documents.tokenization import TokenFile, count_tokens, document_end, document_start, tokenize_documents

__all__ = [
    "Corpus",
    "TokenFile",
    "count_tokens",
    "document_end",
    "document_start",
    "read_corpus",
    "tokenize_documents",
]
