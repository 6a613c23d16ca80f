"""The built-in model and its synthetic data, for runs without a GPU, a network or a corpus of your own."""

from pathlib import Path

from recovery.lab.instructions import Task, instruction_tasks
from recovery.lab.questions import arithmetic, refusals
from recovery.lab.worlds import Document, Question, World, make_world, own_world

BASE = Path(__file__).parent / "base"


def installed_base_path(path: str) -> str | None:
    """Return the built-in model's current path if `path` once led to it: it moves with its Python environment."""
    return str(BASE) if Path(path).is_absolute() and Path(path).parts[-3:] == BASE.parts[-3:] else None


__all__ = [
    "BASE",
    "Document",
    "Question",
    "Task",
    "World",
    "arithmetic",
    "installed_base_path",
    "instruction_tasks",
    "make_world",
    "own_world",
    "refusals",
]
