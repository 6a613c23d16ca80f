from pathlib import Path

import pytest

from recovery.batch import Sequence
from recovery.inspect import look_at
from recovery.students import load_student
from recovery.teachers import FrozenTeacher
from tests.models import save_tiny

ROWS = [Sequence([7, 8, 9, 10], [False, False, True, True]), Sequence([20, 21, 22], [False, True, True])]


def test_each_taught_token_is_seen_with_what_both_would_rather_say(tmp_path: Path) -> None:
    student = load_student(str(save_tiny(tmp_path / "student")))
    teacher = FrozenTeacher(str(save_tiny(tmp_path / "teacher", seed=1)))
    rows = look_at(student, teacher, ROWS, choices=4)
    assert [len(row) for row in rows] == [2, 2]
    for row, seen in zip(ROWS, rows, strict=True):
        wanted = [t for t, taught in zip(row.tokens, row.targets, strict=True) if taught]
        assert [token.text for token in seen] == [student.chat.tokenizer.decode([t]) for t in wanted]
        for token in seen:
            assert token.kl > 0
            for choices in (token.student, token.teacher):
                shares = [p for _, p in choices]
                assert len(shares) == 4
                assert shares == sorted(shares, reverse=True)
                assert sum(shares) <= 1


def test_a_teacher_that_is_the_student_is_nowhere_apart_from_it(tmp_path: Path) -> None:
    folder = str(save_tiny(tmp_path))
    for row in look_at(load_student(folder), FrozenTeacher(folder), ROWS):
        for token in row:
            assert token.kl == pytest.approx(0, abs=1e-6)
            assert token.student == token.teacher
