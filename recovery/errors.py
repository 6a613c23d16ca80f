"""The base class of every error that a user can cause or fix."""


class RecoverError(Exception):
    """An error the user can fix: its message is full sentences and says what to do."""
