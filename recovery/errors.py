"""The base class of every error that a user can cause or fix."""


class RecoverError(Exception):
    """An error the user can fix: its message is full sentences and says what to do."""


def first_line(error: BaseException) -> str:
    """What went wrong, for a one-line message: the first line of the error's text, or its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
