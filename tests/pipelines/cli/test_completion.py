from click.shell_completion import BashComplete

from pipelines.cli import main


def completions(*arguments: str) -> list[str]:
    *before, incomplete = arguments
    items = BashComplete(main, {}, "recover", "_RECOVER_COMPLETE").get_completions(before, incomplete)
    return [item.value for item in items]


def test_commands_flags_and_choices_are_completed() -> None:
    assert completions("cy") == ["cycle"]
    assert completions("cycle", "--mi") == ["--mix"]
    assert completions("eval", "--suite", "beh") == ["behaviour"]
