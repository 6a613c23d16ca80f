"""Command line options that several tests use."""


def set_options(*assignments: str) -> list[str]:
    """`--set` before each assignment."""
    return [argument for assignment in assignments for argument in ("--set", assignment)]
