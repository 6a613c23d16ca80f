"""Documents as people have them: read from any common format, once each, in a fixed order, never all in memory."""

from pipelines.documents.corpus import Corpus, read_corpus
from pipelines.documents.tokenized import TokenFile, before_document, count_tokens, document_end, tokenize_documents

__all__ = [
    "Corpus",
    "TokenFile",
    "before_document",
    "count_tokens",
    "document_end",
    "read_corpus",
    "tokenize_documents",
]
