"""Closed-book questions on documents: the clean base writes them from passages, and filters select the useful ones."""

from pipelines.synthetic.questions.generate import GeneratedQuestion, generate_questions
from pipelines.synthetic.questions.parse import Draft, parse_drafts

__all__ = ["Draft", "GeneratedQuestion", "generate_questions", "parse_drafts"]
