import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pipelines.cli.options import takes_request
from pipelines.cli.train import guards
from pipelines.request import CommandWithRequest, Request
from tests.pipelines.options import recover


def asked(command: CommandWithRequest, *arguments: str) -> Request:
    requests: list[Request] = []
    run = click.command()(takes_request(command)(lambda request: requests.append(request)))
    result = CliRunner().invoke(run, arguments)
    assert not result.exit_code, result.output
    return requests[0]


def test_without_options_a_request_has_the_defaults_of_its_fields() -> None:
    assert asked("distill") == Request("distill")
    assert asked("check") == asked("repair") == Request("repair")


def test_options_arrive_in_the_fields_of_the_request() -> None:
    given = ["--docs", "notes", "--set", "a=1", "--set", "b=2", "--max-flops", "1e15", "--engine", "http://gpu:8000"]
    assert asked("cycle", *given, "--seed", "7") == Request(
        "cycle", docs=Path("notes"), assignments=("a=1", "b=2"), max_flops=1e15, engine="http://gpu:8000", seed=7
    )


@pytest.mark.parametrize("wrong", [("--limit", "0"), ("--max-minutes", "0"), ("--engine", "other"), ("--mix", "a=1")])
def test_an_option_that_a_command_lacks_or_a_value_out_of_range_is_wrong_usage(wrong: tuple[str, ...]) -> None:
    assert recover("distill", *wrong).exit_code == 2


@pytest.mark.parametrize("option", ["--docs", "--base", "--project", "--mix"])
def test_an_empty_value_is_wrong_usage(option: str) -> None:
    """Such as that of a variable of the shell that is not set."""
    refused = recover("midtrain", "--docs", "notes", option, "")
    assert (refused.exit_code, "It is empty" in refused.stderr) == (2, True)


@pytest.mark.parametrize("command", [("export", "base"), ("report", "1"), ("check", "org/name")])
def test_an_empty_destination_is_wrong_usage(command: tuple[str, ...]) -> None:
    refused = recover(*command, "--to", "")
    assert (refused.exit_code, "It is empty" in refused.stderr) == (2, True)


def test_a_number_that_no_run_can_have_is_wrong_usage() -> None:
    assert recover("resume", 10**20).exit_code == 2


def test_the_repair_that_a_check_names_has_what_the_check_was_given() -> None:
    given = shlex.split("--docs 'my notes' --questions q.jsonl --engine transformers --set gate.block=0 --set seed=1")
    assert list(guards(asked("check", *given))) == given
    assert asked("repair", *guards(asked("check", *given))) == asked("repair", *given)
    assert list(guards(asked("check", "--limit", "40"))) == [], "a repair asks as many as it needs"
