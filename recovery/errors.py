"""One exception root: every error a user can cause or mend, said in one sentence."""


class RecoverError(Exception):
    """Something the user can mend; its text says how."""
