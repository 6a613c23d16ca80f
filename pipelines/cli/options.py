"""Flags that several commands share, and what they come to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

ENGINES = ("transformers", "vllm")

existing = click.Path(path_type=Path)


def _option(*names: str, **how: Any) -> Callable[[Any], Any]:
    return click.option(*names, **how)


base = _option(
    "--base",
    metavar="REF",
    help="The clean model: a folder or hub id "
    "[default: the project's, RECOVER_BASE, recover.toml, else the built-in model]",
)
docs = _option("--docs", type=existing, required=True, help="A folder or file of documents, or a data set of the hub.")
teacher = _option(
    "--teacher",
    metavar="REF",
    default="base",
    show_default=True,
    help="Who restores the behaviour; router: the base, and for earlier documents what was last promoted.",
)
prompts = _option(
    "--prompts",
    type=existing,
    help="Prompts to distil on: a file, or a data set of the hub [default: the clean base writes them]",
)
questions = _option("--questions", type=existing, help="Closed-book questions on the documents (JSONL).")
recipe = _option("--recipe", metavar="NAME", help="A named setting of the training loop's dials.")
max_steps = _option("--max-steps", type=click.IntRange(min=1), help="At most so many optimiser steps.")
max_minutes = _option("--max-minutes", type=click.FloatRange(min=0, min_open=True), help="Distil at most so long.")
max_flops = _option(
    "--max-flops", type=click.FloatRange(min=0, min_open=True), help="Distil with at most so many FLOPs."
)
warm_start = _option(
    "--warm-start",
    metavar="off|auto|default|SHARE",
    help="Move the weights part of the way back to where mid-training began, before distilling "
    "[default: default for small models, off for large ones]",
)
mix = _option(
    "--mix",
    metavar="documents|auto|NAME=SHARE,…",
    help="What is read besides the documents, as answers=0.3,texts=0.3,earlier=0.3,paraphrases=1; what is not listed "
    "is 0. documents: nothing. auto: the default mix, with the share of answers found by trying.",
)
auto = _option("--auto", is_flag=True, help="Tune automatically: --mix auto --warm-start auto; explicit flags win.")
engine = _option("--engine", type=click.Choice(ENGINES), help="What generates text.")
seed = _option("--seed", type=int, default=0, show_default=True)
limit = _option("--limit", type=click.IntRange(min=1), help="At most so many items a task.")
ifeval_data = _option("--ifeval-data", type=existing, help="IFEval prompts in the public JSONL format.")
dotted = _option(
    "--set",
    "assignments",
    metavar="NAME=VALUE",
    multiple=True,
    help="Any setting, such as distill.steps=20; repeatable.",
)
dry_run = _option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
ask = _option("--ask", is_flag=True, help="Let a person decide, with the gate's verdict before them.")


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


# What every command that trains is told.
training = together(base, questions, recipe, max_steps, engine, seed, dotted, dry_run)
# What a distillation is told besides, by itself or as part of a cycle.
distilling = together(teacher, prompts, limit, ifeval_data, warm_start, max_minutes, max_flops, ask)
