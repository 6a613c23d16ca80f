"""A teacher with given log-probs."""

from torch import Tensor

from recovery.teachers import Part, TeacherLogprobs


class FixedTeacher(TeacherLogprobs):
    def __init__(self, logprobs: Tensor):
        self._logprobs = logprobs

    def logprobs(self, part: Part) -> Tensor:
        return self._logprobs[part]
