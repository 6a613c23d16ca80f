"""The record: a database of projects, cycles, runs, checkpoints, scores and decisions."""


class RecordError(Exception):
    """The record could not be opened, read or written. The message says what to do about it."""
