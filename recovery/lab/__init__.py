"""The built-in model and the small worlds it lives in: what runs when there is no GPU, no network, no corpus."""

from pathlib import Path

from recovery.lab.chat.arithmetic import arithmetic
from recovery.lab.chat.instructions import Task, instruction_tasks
from recovery.lab.chat.refusals import refusals
from recovery.lab.worlds.world import Document, Question, World, make_world, own_world

BASE = Path(__file__).parent / "base"


def where_installed(path: str) -> str | None:
    """Where the built-in model lies now, if the path once led to it: it moves with the environment that holds it."""
    return str(BASE) if Path(path).is_absolute() and Path(path).parts[-3:] == BASE.parts[-3:] else None


__all__ = [
    "BASE",
    "Document",
    "Question",
    "Task",
    "World",
    "arithmetic",
    "instruction_tasks",
    "make_world",
    "own_world",
    "refusals",
    "where_installed",
]
