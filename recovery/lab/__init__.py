"""The built-in model and the small worlds it lives in: what runs when there is no GPU, no network, no corpus."""

from pathlib import Path

from recovery.lab.arithmetic import arithmetic
from recovery.lab.instructions import Task, instruction_tasks
from recovery.lab.refusals import refusals
from recovery.lab.world import Document, Question, World, make_world, own_world

BASE = Path(__file__).parent / "base"

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
]
