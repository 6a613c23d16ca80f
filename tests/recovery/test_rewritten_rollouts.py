"""Rollouts that a teacher continues, and rollouts that are learned with a context and without."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.models.students import Student, load_student
from recovery.objectives import CrossEntropy
from recovery.samples import Sample
from recovery.signals import Labels
from recovery.states import PrivilegedPairs, Prompt, Rollouts, TeacherContinuations, with_swapped_prompts
from recovery.train import Plan, train
from tests.models import save_tiny, tiny_student

LIMIT = 12


class Recorder:
    """An engine that remembers what it was given."""

    def __init__(self, student: Student):
        self.engine, self.prompts = TransformersEngine(student), list[list[int]]()

    def generate(self, prompts: list[list[int]], sampling: Sampling) -> list[object]:
        self.prompts, self.written = list(prompts), self.engine.generate(prompts, sampling)
        return list(self.written)


@pytest.fixture
def student(tmp_path: Path) -> Student:
    return tiny_student(tmp_path / "student", seed=1)


def rollouts(student: Student, teacher_prompt: list[int] | None = None, rows: int = 16) -> Rollouts:
    prompts = [Prompt(f"say {i}", student.chat.prompt("say " + "it " * i), None, teacher_prompt) for i in range(1, 9)]
    return Rollouts(prompts, TransformersEngine(student), rows=rows, max_new_tokens=LIMIT)


@pytest.mark.parametrize("teacher_prompt", [None, [9, 8, 7, 6]])
def test_the_writer_goes_on_from_a_beginning_of_the_students_reply(
    tmp_path: Path, student: Student, teacher_prompt: list[int] | None
) -> None:
    writer = Recorder(load_student(str(save_tiny(tmp_path / "t", seed=2)), frozen=True))
    drawn = rollouts(student, teacher_prompt)
    continued = TeacherContinuations(drawn, writer, 7, min_tokens=2, max_tokens=5)  # type: ignore[arg-type]
    cuts, lengths = Counter[int](), Counter[int]()
    for step in range(8):
        rows = continued.draw(student, step)
        originals = [row for row in drawn.draw(student, step) if row.target_count]
        for row, original, writer_prompt, written in zip(rows, originals, writer.prompts, writer.written, strict=True):
            prompt = original.targets.index(True)
            own = row.target_count
            beginning = row.tokens[: len(row.tokens) - own]
            assert beginning == original.tokens[: len(beginning)]  # the student's own prompt and words
            assert len(beginning) >= prompt
            assert writer_prompt == (teacher_prompt or original.tokens[:prompt]) + beginning[prompt:]
            assert row.tokens[len(beginning) :] == written.tokens[:own]
            assert row.targets == [False] * len(beginning) + [True] * own
            cuts[len(beginning) - prompt] += 1
            lengths[own] += 1
            flops = 2.0 * (student.parameters * len(original.tokens) + 7 * (len(writer_prompt) + len(written.tokens)))
            assert row.writing_flops == flops
    assert set(cuts) >= {0, 1, 2, 3, 4, 5, 6, 7, 8}
    assert max(cuts) < LIMIT
    assert set(lengths) <= {1, 2, 3, 4, 5}
    assert set(lengths) >= {2, 3, 4, 5}


def test_the_same_step_draws_the_same_rows_and_its_cost_is_recorded(tmp_path: Path, student: Student) -> None:
    writer = load_student(str(save_tiny(tmp_path / "t", seed=2)), frozen=True)
    continued = TeacherContinuations(
        rollouts(student), TransformersEngine(writer), writer.parameters, min_tokens=16, max_tokens=32
    )
    rows = continued.draw(student, 0)
    assert rows == continued.draw(student, 0)
    record = next(train(student, continued, Labels(), CrossEntropy(), Plan(1, 0.0)))
    trained = 6.0 * student.parameters * sum(len(row.tokens) for row in rows)
    assert record.flops == trained + sum(row.writing_flops for row in rows)
    assert record.target_tokens == sum(row.target_count for row in rows)


def test_both_rows_of_a_rollout_have_its_reply_and_each_others_prompt(student: Student) -> None:
    shown = [9, 8, 7, 6]
    own = [Prompt(f"say {i}", [20 + i] * 3, "a", shown) for i in range(4)]
    assert with_swapped_prompts(with_swapped_prompts(own)) == own
    bare = [replace(own[0], teacher_prompt=None)]
    assert with_swapped_prompts(bare) == bare
    drawn = Rollouts(with_swapped_prompts(own), TransformersEngine(student), rows=8, group=2, max_new_tokens=6)
    rows = PrivilegedPairs(drawn).draw(student, 0)
    originals = drawn.draw(student, 0)
    assert [row.privileged for row in rows] == [True, False] * len(originals)
    for original, with_it, without in zip(originals, rows[::2], rows[1::2], strict=True):
        assert replace(with_it, privileged=None) == original
        assert with_it.for_teacher.tokens == without.tokens
        assert without.for_teacher.tokens == with_it.tokens
        assert without.tokens[:3] == with_it.teacher_prompt == [20 + int(str(original.prompt)[-1])] * 3
        assert (with_it.logprobs, with_it.group) == (without.logprobs, without.group)


def test_a_rollout_without_a_context_is_learned_once(student: Student) -> None:
    rows: list[Sample] = PrivilegedPairs(rollouts(student)).draw(student, 0)
    assert [row.privileged for row in rows] == [None] * 16
