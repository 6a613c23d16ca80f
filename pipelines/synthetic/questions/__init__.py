"""Closed-book questions that the clean base writes with the passage in view, and that stand a test."""

from pipelines.synthetic.questions.generate import Kept, ask_about
from pipelines.synthetic.questions.parse import Draft, drafts_in

__all__ = ["Draft", "Kept", "ask_about", "drafts_in"]
