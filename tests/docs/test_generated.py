"""The generated pages are of today, and every command says what it does and shows how it is called."""

import ast
from pathlib import Path

import click
import pytest

from tests.docs.api import PIECES, parsed
from tests.docs.pages import DOCS, GENERATED
from tests.docs.reference import commands, examples

COMMANDS = dict(commands())


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.name)
def test_a_generated_page_is_of_today(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == GENERATED[page](), f"docs/{page.name} is stale: run make docs"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_explains_itself_and_its_examples_are_true(name: str) -> None:
    command = COMMANDS[name]
    assert command.help, f"{name} has no help"
    shown = examples(command)
    assert shown, f"{name} shows no example"
    for words in shown:
        assert words[: len(name.split())] == name.split(), f"{' '.join(words)} is no example of {name}"
        with command.make_context(name, words[len(name.split()) :]) as context:  # refuses a flag that does not exist
            assert context.params


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_its_flags_are_in_the_contracts(name: str) -> None:
    contracts = (DOCS / "contracts.md").read_text(encoding="utf-8")
    assert name in contracts, f"name {name} in docs/contracts.md first"
    options = [each for each in COMMANDS[name].params if isinstance(each, click.Option)]
    missing = [flag for each in options for flag in each.opts if flag.startswith("--") and flag not in contracts]
    assert not missing, f"{name}: write {', '.join(missing)} into docs/contracts.md first"


@pytest.mark.parametrize("module", PIECES)
def test_a_public_module_says_what_it_is_for(module: str) -> None:
    assert ast.get_docstring(parsed(module))
