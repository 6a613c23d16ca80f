"""Read documents of any common format: deduplicated, in a fixed order, never all in memory."""

from pipelines.documents.corpus import Corpus, read_corpus
from pipelines.documents.tokenization import TokenFile, count_tokens, tokenize_documents

__all__ = [
    "Corpus",
    "TokenFile",
    "count_tokens",
    "read_corpus",
    "tokenize_documents",
]
