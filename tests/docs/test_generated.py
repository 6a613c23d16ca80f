import ast
from pathlib import Path

import click
import pytest

from recovery.recipes import DIALS
from tests.docs.api import PUBLIC, parse_module
from tests.docs.pages import DOCS, GENERATED
from tests.docs.reference import commands, examples, recipes_by_dials

COMMANDS = dict(commands())


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.name)
def test_a_generated_page_is_up_to_date(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == GENERATED[page](), f"docs/{page.name} is out of date: run make docs"


def test_the_table_of_recipes_has_the_values_of_their_dials() -> None:
    assert recipes_by_dials() in (DOCS / "recipes.md").read_text(encoding="utf-8")


def test_every_dial_is_in_the_table_of_settings() -> None:
    contracts = (DOCS / "contracts.md").read_text(encoding="utf-8")
    assert not [dial for dial in DIALS if f"| `distill.{dial}` |" not in contracts]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_description_and_valid_examples(name: str) -> None:
    command = COMMANDS[name]
    assert command.help, f"{name} has no help"
    command_lines = examples(command)
    assert command_lines, f"{name} has no example"
    path = name.split()
    for arguments in command_lines:
        assert arguments[: len(path)] == path, f"{' '.join(arguments)} is no example of {name}"
        with command.make_context(name, arguments[len(path) :]) as context:  # rejects a flag that does not exist
            assert context.params


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_its_flags_are_in_the_contracts(name: str) -> None:
    contracts = (DOCS / "contracts.md").read_text(encoding="utf-8")
    assert name in contracts, f"describe {name} in docs/contracts.md"
    options = [option for option in COMMANDS[name].params if isinstance(option, click.Option)]
    missing = [flag for option in options for flag in option.opts if flag.startswith("--") and flag not in contracts]
    assert not missing, f"{name}: describe {', '.join(missing)} in docs/contracts.md"


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_module_has_a_docstring(module: str) -> None:
    assert ast.get_docstring(parse_module(module))
