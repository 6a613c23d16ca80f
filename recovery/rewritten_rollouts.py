"""Draws made from rollouts: continued by another model, or read both with and without what only the teacher sees."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from recovery.engines import Engine, Sampling
from recovery.models.students import Student
from recovery.samples import Sample
from recovery.states import Prompt, States


class TeacherContinuations:
    """The beginnings of rollouts, each continued by a teacher; only what the teacher wrote is learned.

    A beginning may be of any length, and never holds the token that ended the rollout. The teacher continues it for
    `min_tokens` to `max_tokens`; if it has a prompt of its own, it reads that."""

    def __init__(
        self, rollouts: States, writer: Engine, parameters: int, *, min_tokens: int, max_tokens: int, seed: int = 0
    ):
        self.rollouts, self.writer, self.parameters = rollouts, writer, parameters
        self.min_tokens, self.max_tokens, self.seed = min_tokens, max_tokens, seed

    def draw(self, student: Student, step: int) -> list[Sample]:
        rng = Random(f"{self.seed}/{step}")
        rows = [row for row in self.rollouts.draw(student, step) if row.target_count]
        cuts = [rng.randrange(row.target_count) for row in rows]
        lengths = [rng.randint(self.min_tokens, self.max_tokens) for _ in rows]
        writer_prompts = [_beginning(row.for_teacher, cut) for row, cut in zip(rows, cuts, strict=True)]
        sampling = Sampling(self.max_tokens, seed=rng.randrange(2**31), with_logprobs=False)
        written = [generation.tokens for generation in self.writer.generate(writer_prompts, sampling)]
        samples = []
        for row, cut, length, writer_prompt, tokens in zip(rows, cuts, lengths, writer_prompts, written, strict=True):
            beginning, reply = _beginning(row, cut), tokens[:length]
            flops = 2.0 * (student.parameters * len(row.tokens) + self.parameters * (len(writer_prompt) + len(tokens)))
            targets = [False] * len(beginning) + [True] * len(reply)
            sample = Sample(beginning + reply, targets, prompt=row.prompt, domain=row.domain, writing_flops=flops)
            samples.append(sample)
        return samples


def _beginning(row: Sample, cut: int) -> list[int]:
    """The prompt and the first `cut` tokens of the reply."""
    return row.tokens[: row.prompt_length + cut]


class PrivilegedPairs:
    """Rollouts of the student behind the teacher's prompt, each learned twice: there, and behind the student's own."""

    def __init__(self, rollouts: States):
        self.rollouts = rollouts

    def draw(self, student: Student, step: int) -> list[Sample]:
        rows: list[Sample] = []
        for row in self.rollouts.draw(student, step):
            if row.teacher_prompt is None or not row.target_count:  # one prompt for both
                rows.append(row)
                continue
            own = row.tokens[: row.prompt_length]
            rows.append(replace(row, privileged=True))
            rows.append(replace(row.for_teacher, teacher_prompt=own, privileged=False))
        return rows


def with_swapped_prompts(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The prompts with those of the teacher in place of the student's, and the other way round."""
    return [replace(p, tokens=p.teacher_prompt, teacher_prompt=p.tokens) if p.teacher_prompt else p for p in prompts]
