"""Flags that several commands share, and what they come to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

existing = click.Path(path_type=Path)


def _option(*names: str, **how: Any) -> Callable[[Any], Any]:
    return click.option(*names, **how)


base = _option("--base", metavar="REF", help="The clean model: a folder or hub id [default: the built-in lab model]")
docs = _option("--docs", type=existing, required=True, help="A folder or file of documents.")
teacher = _option("--teacher", metavar="REF", default="base", show_default=True, help="Who restores the behaviour.")
prompts = _option("--prompts", type=existing, help="Prompts to distil on [default: the clean base writes them]")
questions = _option("--questions", type=existing, help="Closed-book questions on the documents (JSONL).")
recipe = _option("--recipe", metavar="NAME", help="A named setting of the training loop's dials.")
max_steps = _option("--max-steps", type=click.IntRange(min=1), help="At most so many optimiser steps.")
seed = _option("--seed", type=int, default=0, show_default=True)
limit = _option("--limit", type=click.IntRange(min=1), help="At most so many items a task.")
ifeval_data = _option("--ifeval-data", type=existing, help="IFEval prompts in the public JSONL format.")


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


# What a distillation is told, by itself or as part of a cycle.
distilling = together(teacher, prompts, questions, recipe, max_steps, limit, ifeval_data, seed)
