"""One error for everything the record cannot do; its text says what to do about it."""


class RecordError(Exception):
    """The record could not be opened, read or written."""
