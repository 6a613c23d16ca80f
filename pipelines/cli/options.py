"""Options that several commands share; those of training commands are made from the fields of `Request`."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from pipelines.request import READ, CommandWithRequest, Option, Request
from pipelines.settings.sources import ENGINES

Decorator = Callable[[Any], Any]


class NotEmpty:
    """Refuses an empty value, such as that of a variable that is not set: as a path it would be the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            raise click.BadParameter("It is empty.", ctx, param)
        return super().convert(value, param, ctx)  # type: ignore[misc]


class FilePath(NotEmpty, click.Path):
    def __init__(self, *, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(path_type=Path, file_okay=file_okay, dir_okay=dir_okay)


class Text(NotEmpty, click.types.StringParamType):
    pass


file_path = FilePath()


class EngineType(click.Choice[str]):
    """A library, or addresses of servers."""

    name = "engine"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if str(value).startswith(("http://", "https://")) else super().convert(value, param, ctx)


TYPES: dict[Any, Any] = {
    Path | None: file_path,
    str | None: Text(),
    int | None: click.IntRange(min=1),
    int: click.IntRange(0, 2**31 - 1),
    float | None: click.FloatRange(min=0, min_open=True),
}
FIELDS = {field.name: field for field in fields(Request) if "options" in field.metadata}


def project_in(default: str) -> Decorator:
    """`--project`, with the folder that a command uses without it."""
    return click.option("--project", type=FilePath(file_okay=False), help=f"The project folder [default: {default}]")


project = project_in("the working directory or its nearest parent with a project")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")


def of_request(*names: str) -> Decorator:
    """The options of these fields of `Request`, as they are described first, for a command with parameters."""
    return _all_of([_click_option(name, FIELDS[name].metadata["options"][0]) for name in names])


def takes_request(command: CommandWithRequest) -> Decorator:
    """The options that `Request` has for the command, which gets them as one `request`."""
    chosen = {
        name: option
        for name, field in FIELDS.items()
        for option in field.metadata["options"]
        if command in option.commands
    }

    def decorate(function: Callable[..., Any]) -> Any:
        @wraps(function)
        def run(**arguments: Any) -> Any:
            given = {name: arguments.pop(name) for name in chosen}
            request = Request("repair" if command == "check" else command, **given)
            if command in READ and not request.midtrains:
                raise click.UsageError("Missing option '--docs' or '--conversations'.")
            return function(request=request, **arguments)

        return _all_of([_click_option(name, replace(option, required=False)) for name, option in chosen.items()])(run)

    return decorate


def _click_option(name: str, option: Option) -> Decorator:
    field = FIELDS[name]
    # Click takes a default of None for a value, and would require nothing.
    default: dict[str, Any] = {} if field.default is None else {"default": field.default}
    return click.option(
        option.flag or f"--{name.replace('_', '-')}",
        name,
        type=EngineType(ENGINES) if name == "engine" else TYPES.get(field.type),
        is_flag=field.type is bool,
        multiple=field.type == tuple[str, ...],
        show_default=field.type is int,
        required=option.required,
        metavar=option.metavar,
        help=option.help,
        **default,
    )


def _all_of(options: list[Decorator]) -> Decorator:
    """One decorator that adds several options, in this order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add
