"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pipelines.settings.sources import ENGINES

file_path = click.Path(path_type=Path)


class EngineType(click.Choice[str]):
    """A library, or addresses of servers."""

    name = "engine"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if str(value).startswith(("http://", "https://")) else super().convert(value, param, ctx)


def project_in(default: str) -> Callable[[Any], Any]:
    """`--project`, with the folder that a command uses without it."""
    folder = click.Path(path_type=Path, file_okay=False)
    return click.option("--project", type=folder, help=f"The project folder [default: {default}]")


project = project_in("the working directory or its nearest parent with a project")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
base = click.option(
    "--base",
    metavar="REF",
    help="The clean model: a folder, GGUF file or hub id "
    "[default: the project's, RECOVER_BASE, recover.toml, else the built-in model]",
)
docs = click.option(
    "--docs", type=file_path, required=True, help="A file or folder of documents, or a data set on the hub."
)
training_data = click.option(
    "--docs",
    type=file_path,
    help="What it was fine-tuned on: documents, or a file of conversations (Alpaca, ShareGPT, messages).",
)
teacher = click.option(
    "--teacher",
    metavar="REF",
    help="The model to learn from; http://host:8000: the base on a server; or router, ema, live, or maths=REF,*=base: "
    "by the domain of each prompt [default: base, with sdft ema]",
)
teacher_context = click.option(
    "--teacher-context",
    type=file_path,
    help="What only the teacher reads: JSONL with prompts, or one text for all prompts (opsd, sdft, opcd, …); of "
    "midtrain, questions with their passages (in-context).",
)
prompts = click.option(
    "--prompts",
    type=file_path,
    help="Prompts to distil on: a file, or a data set on the hub [default: the base writes them]",
)
questions = click.option("--questions", type=file_path, help="Closed-book questions on the documents (JSONL).")
recipe = click.option("--recipe", metavar="NAME", help="A named training recipe.")
max_steps = click.option("--max-steps", type=click.IntRange(min=1), help="Take at most this many optimiser steps.")
max_minutes = click.option(
    "--max-minutes", type=click.FloatRange(min=0, min_open=True), help="Distil for at most this many minutes."
)
max_flops = click.option(
    "--max-flops", type=click.FloatRange(min=0, min_open=True), help="Distil with at most this many FLOPs."
)
warm_start = click.option(
    "--warm-start",
    metavar="off|auto|default|SHARE",
    help="Before distilling, move the weights by this share towards those before mid-training; auto tries some shares "
    "[default: default for small models, off for large ones]",
)
mix = click.option(
    "--mix",
    metavar="documents|ENTRIES",
    help="What mid-training reads: documents alone, or shares of other texts besides (such as answers=0.3,texts=0.3).",
)
engine = click.option(
    "--engine",
    type=EngineType(ENGINES),
    metavar=f"{'|'.join(ENGINES)}|URL",
    help="The library that generates text, or vLLM servers (http://host:8000,http://…); auto: vLLM if it is "
    "installed, but transformers for small models [default: auto]",
)
seed = click.option("--seed", type=int, default=0, show_default=True, help="The random seed.")
limit = click.option("--limit", type=click.IntRange(min=1), help="Use at most this many items per task.")
ifeval_data = click.option("--ifeval-data", type=file_path, help="IFEval prompts in the public JSONL format.")
assignments = click.option(
    "--set",
    "assignments",
    metavar="NAME=VALUE",
    multiple=True,
    help="Any setting, such as distill.steps=20; repeatable.",
)
processes = click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="Train with this many processes, one for each GPU; they share out the weights and the rows [default: 1]",
)
dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
ask = click.option("--ask", is_flag=True, help="Let a person decide after the gate's verdict.")


def combine(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One decorator that adds several options, in this order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


training = combine(base, questions, recipe, max_steps, engine, processes, seed, assignments, dry_run)
distilling = combine(teacher, prompts, teacher_context, limit, ifeval_data, warm_start, max_minutes, max_flops, ask)
judging = combine(base, questions, training_data, limit, ifeval_data, engine, assignments)
