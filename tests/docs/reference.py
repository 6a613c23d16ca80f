"""Generates docs/reference.md: the help of every command, and the defaults of distillation by recipe."""

import shlex
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args

import click
from packaging.requirements import Requirement

from pipelines.cli import SECTIONS, main
from pipelines.settings.defaults import PACES, Size, learns_from
from pipelines.settings.resolve import as_text
from pipelines.training.recipe_inputs import DISTILL_RECIPES
from recovery.recipes import DIALS, RECIPES

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
HEAD = """# Command reference

`make docs` writes this page from the code; do not edit it by hand. The help of each command is followed by the
[defaults of distillation](#defaults-of-distillation), the [dials](#dials) and the [versions](#versions) of libraries.
JSON output, exit codes and references to checkpoints are described in [contracts.md](contracts.md).
"""


def reference() -> str:
    pages = {name: command_page(name, command) for name, command in commands()}
    lines = [HEAD]
    for title, names in SECTIONS.items():
        lines += [f"## {title}", ""]
        lines += [page for name, page in pages.items() if name.split()[1] in names]
    return "\n".join([*lines, defaults_of_distillation(), dials(), versions()])


def defaults_of_distillation() -> str:
    sizes = list(get_args(Size))
    lines = [
        "## Defaults of distillation",
        "",
        "Learning rate, steps and rows of a step, by the size of the model and by what a recipe learns from.",
        "",
        f"| learns from | {' | '.join(sizes)} | recipes |",
        "|---|---|---|---|---|",
    ]
    for source, paces in PACES.items():
        cells = [f"{rate:g}, {steps}, {rows}" for rate, steps, rows in (paces[size] for size in sizes)]
        names = [f"`{name}`" for name in DISTILL_RECIPES if learns_from(name) == source]
        lines.append(f"| {source} | {' | '.join(cells)} | {', '.join(names)} |")
    return "\n".join([*lines, ""])


def dials() -> str:
    lines = [
        "## Dials",
        "",
        "The values that recipes have for the dials of `[distill]`. Other recipes refuse the dial, unless another one",
        "gives it a meaning.",
        "",
        "| setting | value: recipes |",
        "|---|---|",
    ]
    for dial in DIALS:
        by_value: dict[str, list[str]] = defaultdict(list)
        for name in DISTILL_RECIPES:
            if dial in RECIPES[name].dials:
                by_value[_value(RECIPES[name].dials[dial])].append(f"`{name}`")
        cell = "; ".join(f"{value}: {', '.join(names)}" for value, names in by_value.items())
        lines.append(f"| `distill.{dial}` | {cell} |")
    return "\n".join([*lines, ""])


def versions() -> str:
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    lines = [
        "## Versions",
        "",
        f"Python {project['requires-python'].removeprefix('>=')} or newer, on Linux. Before a release the quick tests "
        "run with the oldest version of every library.",
        "",
        "| library | oldest | newer ones below |",
        "|---|---|---|",
    ]
    for requirement in map(Requirement, project["dependencies"]):
        bounds = {bound.operator: bound.version for bound in requirement.specifier}
        lines.append(f"| {requirement.name} | {bounds['>=']} | {bounds['<']} |")
    return "\n".join([*lines, ""])


def recipes_by_dials() -> str:
    """The table of docs/recipes.md. Left out are dials that have one value in all recipes."""
    own = {name: RECIPES[name].dials for name in DISTILL_RECIPES}
    shown = [dial for dial in DIALS if len({dials[dial] for dials in own.values() if dial in dials}) > 1]
    lines = [f"| recipe | {' | '.join(f'`{dial}`' for dial in shown)} |", "|---" * (1 + len(shown)) + "|"]
    for name, dials in own.items():
        cells = [_value(dials[dial]) if dial in dials else "" for dial in shown]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else as_text(value)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and its full name, in the order of the help."""
    for names in SECTIONS.values():
        for name in names:
            yield f"recover {name}", main.commands[name]


def command_page(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name, parent=click.Context(main, **main.context_settings))
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = [record for option in command.get_params(context) if (record := option.get_help_record(context))]
    lines = [f"### {name}", "", f"    {usage}", "", help_as_markdown(command), ""]
    lines += [
        "| option | meaning |",
        "|---|---|",
        *(f"| `{_cell(left)}` | {_cell(right)} |" for left, right in rows),
        "",
    ]
    return "\n".join(lines)


def help_as_markdown(command: click.Command) -> str:
    """The help text; paragraphs that click must not rewrap (marked with a backspace) become code blocks."""
    paragraphs = []
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        is_code = paragraph.startswith("\b\n")
        lines = paragraph.removeprefix("\b\n").splitlines()
        paragraphs.append("\n".join(f"    {line}" if is_code else line.strip() for line in lines))
    return "\n\n".join(paragraphs)


def examples(command: click.Command) -> list[list[str]]:
    """The command lines in the help's examples, split into arguments."""
    paragraphs = [part for part in cleandoc(command.help or "").split("\n\n") if part.startswith("\b\n")]
    lines = [line for paragraph in paragraphs for line in paragraph.splitlines() if "recover " in line]
    return [shlex.split(line[line.index("recover ") :], comments=True) for line in lines]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
