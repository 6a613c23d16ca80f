"""docs/reference.md: every command as it describes itself."""

import shlex
from collections.abc import Iterator
from inspect import cleandoc

import click

from pipelines.cli import main

HEAD = """# Command reference

Written by `make docs` from the commands themselves; do not edit it by hand. What they promise to scripts (JSON, exit
codes, references to checkpoints) is in [contracts.md](contracts.md).
"""


def reference() -> str:
    return "\n".join([HEAD, *(section(name, command) for name, command in commands())])


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that can be run, those inside groups too, by the words that call it."""
    yield from _within("recover", main)


def _within(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for word, inner in sorted(command.commands.items()):
        if not inner.hidden:
            yield from _within(f"{name} {word}", inner)


def section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name, parent=click.Context(main, **main.context_settings))
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    lines = [f"## {name}", "", f"    {usage}", "", prose(command), ""]
    lines += ["| option | |", "|---|---|", *(f"| `{_cell(left)}` | {_cell(right)} |" for left, right in rows), ""]
    return "\n".join(lines)


def prose(command: click.Command) -> str:
    """The help as Markdown: paragraphs that keep their lines (click marks them with a backspace) become code."""
    shown = []
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        kept = paragraph.startswith("\b\n")
        lines = paragraph.removeprefix("\b\n").splitlines()
        shown.append("\n".join(f"    {line}" for line in lines) if kept else " ".join(map(str.strip, lines)))
    return "\n\n".join(shown)


def examples(command: click.Command) -> list[list[str]]:
    """The command lines that the help gives, as the shell would split them."""
    kept = [part for part in cleandoc(command.help or "").split("\n\n") if part.startswith("\b\n")]
    lines = [line for part in kept for line in part.splitlines() if "recover " in line]
    return [shlex.split(line[line.index("recover ") :], comments=True) for line in lines]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
