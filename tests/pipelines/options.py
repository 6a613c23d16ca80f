"""The command line in this process, and options that several tests use."""

from click.testing import CliRunner, Result

from pipelines.cli import main


def recover(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def set_options(*assignments: str) -> list[str]:
    """`--set` before each assignment."""
    return [argument for assignment in assignments for argument in ("--set", assignment)]


SMALL_DISTILLATION = set_options(
    *("distill.rows=4", "distill.prompts=16", "distill.max_new_tokens=32", "distill.probe_every=0", "gate.samples=0")
)
