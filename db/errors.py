"""The one exception of the record; its message says what to do about it."""


class RecordError(Exception):
    """The record could not be opened, read or written."""
