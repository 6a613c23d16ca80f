"""What a training command was given on its command line, before anything of it is checked.

The options of the commands are made from the fields of `Request`. Nothing heavy is imported here, so that `--help`
answers at once.
"""
# ruff: noqa: RUF009 (`option` and `options` make a field)

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evals.splits import RETENTION_ITEMS
from pipelines.settings.sources import ENGINES, EngineName

if TYPE_CHECKING:  # it imports torch
    from pipelines.job import Command

CommandWithRequest = Literal["midtrain", "distill", "cycle", "check", "repair"]
Commands = tuple[CommandWithRequest, ...]

READ: Commands = ("midtrain", "cycle")
DISTILL: Commands = ("distill", "cycle")
TRAIN: Commands = ("midtrain", "distill", "cycle")
JUDGE: Commands = ("check", "repair")  # a model that was trained elsewhere


@dataclass(frozen=True)
class Option:
    """How some commands are given a field."""

    commands: Commands
    help: str
    metavar: str | None = None
    flag: str | None = None  # by default the name of the field
    required: bool = False  # by commands that read documents alone


def option(
    commands: Commands, help: str, metavar: str | None = None, flag: str | None = None, default: Any = None
) -> Any:
    return options(Option(commands, help, metavar, flag), default=default)


def options(*options: Option, default: Any = None) -> Any:
    """A field that commands describe differently."""
    return field(default=default, metadata={"options": options})


@dataclass(frozen=True)
class Request:
    """What a training command was given; options that it does not have stay None.

    `--help` lists the options in the order of the fields."""

    command: "Command"
    docs: Path | None = options(
        Option(READ, "A file or folder of documents, or a data set on the hub.", required=True),
        Option(JUDGE, "What it was fine-tuned on: documents, or a file of conversations (Alpaca, ShareGPT, messages)."),
    )
    conversations: Path | None = option(
        READ,
        "A file or folder of conversations (Alpaca, ShareGPT, messages), whose assistant's turns are learned; beside "
        "--docs, or alone.",
    )
    student: str | None = option(
        ("distill",),
        "The model to repair [default: the last cycle's mid-trained checkpoint, unless that cycle was promoted]",
        "REF",
    )
    base: str | None = option(
        (*TRAIN, *JUDGE),
        "The clean model: a folder or its URL, a GGUF file or a hub id "
        "[default: the project's, RECOVER_BASE, recover.toml, else the built-in model]",
        "REF",
    )
    questions: Path | None = option((*TRAIN, *JUDGE), "Closed-book questions on the documents (JSONL).")
    recipe: str | None = option(TRAIN, "A named training recipe.", "NAME")
    max_steps: int | None = option(TRAIN, "Take at most this many optimiser steps; of cycle, in its distillation.")
    engine: EngineName | None = option(
        (*TRAIN, *JUDGE),
        "The library that generates text, or vLLM servers (http://host:8000,http://…); auto: vLLM if it is "
        "installed, but transformers for small models [default: auto]",
        f"{'|'.join(ENGINES)}|URL",
    )
    processes: int | None = option(
        (*TRAIN, "repair"),
        "Train with this many processes, one for each GPU; they share out the weights and the rows [default: 1]",
    )
    seed: int = option((*TRAIN, "repair"), "The random seed.", default=0)
    assignments: tuple[str, ...] = option(
        (*TRAIN, *JUDGE), "Any setting, such as distill.steps=20; repeatable.", "NAME=VALUE", "--set", default=()
    )
    mix: str | None = option(
        READ,
        "What mid-training reads: documents alone, or shares of other texts besides (such as answers=0.3,texts=0.3).",
        "documents|ENTRIES",
    )
    teacher: str | None = option(
        DISTILL,
        "The model to learn from; http://host:8000: the base on a server; or router, ema, live, or maths=REF,*=base: "
        "by the domain of each prompt [default: base, with sdft ema]",
        "REF",
    )
    prompts: Path | None = option(
        (*DISTILL, "repair"), "Prompts to distil on: a file, or a data set on the hub [default: the base writes them]"
    )
    teacher_context: Path | None = option(
        TRAIN,
        "What only the teacher reads: JSONL with prompts, or one text for all prompts (opsd, sdft, opcd, …); of "
        "midtrain, questions with their passages (in-context).",
    )
    limit: int | None = option((*DISTILL, *JUDGE), "Use at most this many items per task.")
    secondary_limit: int = RETENTION_ITEMS  # or half of --limit: retention and refusals need fewer items
    ifeval_data: Path | None = option((*DISTILL, *JUDGE), "IFEval prompts in the public JSONL format.")
    warm_start: str | None = option(
        DISTILL,
        "Before distilling, move the weights by this share towards those before mid-training; auto tries some shares "
        "[default: default for small models, off for others]",
        "off|auto|default|SHARE",
    )
    max_minutes: float | None = option(DISTILL, "Distil for at most this many minutes.")
    max_flops: float | None = option(DISTILL, "Distil with at most this many FLOPs.")

    @property
    def midtrains(self) -> bool:
        """Whether it names what mid-training reads."""
        return self.docs is not None or self.conversations is not None

    def setting_flags(self) -> dict[str, Any]:
        """The options that are settings, nested as in recover.toml."""
        stage = "midtrain" if self.command == "midtrain" else "distill"
        settings = {
            ("midtrain", "mix"): self.mix,
            ("distill", "warm_start"): self.warm_start,
            ("distill", "max_minutes"): self.max_minutes,
            ("distill", "max_flops"): self.max_flops,
            (stage, "recipe"): self.recipe,
            (stage, "max_steps"): self.max_steps,
        }
        nested: dict[str, Any] = {} if self.engine is None else {"engine": self.engine}
        for (group, name), value in settings.items():
            if value is not None:
                nested.setdefault(group, {})[name] = value
        return nested
