from pathlib import Path

import pytest

from recovery.batch import Sample
from recovery.models.students import load_student
from recovery.teachers import FrozenTeacher
from recovery.telemetry import token_report as inspect
from recovery.telemetry.token_report import report_tokens
from tests.models import save_tiny

ROWS = [Sample([7, 8, 9, 10], [False, False, True, True]), Sample([20, 21, 22], [False, True, True])]


def test_each_taught_token_is_seen_with_what_both_would_rather_say(tmp_path: Path) -> None:
    student = load_student(str(save_tiny(tmp_path / "student")))
    teacher = FrozenTeacher(str(save_tiny(tmp_path / "teacher", seed=1)))
    rows = report_tokens(student, teacher, ROWS, choices=4)
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
    for row in report_tokens(load_student(folder), FrozenTeacher(folder), ROWS):
        for token in row:
            assert token.kl == pytest.approx(0, abs=1e-6)
            assert token.student == token.teacher


def test_however_few_tokens_are_looked_at_at_once_they_are_seen_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = load_student(str(save_tiny(tmp_path / "student")))
    teacher = FrozenTeacher(str(save_tiny(tmp_path / "teacher", seed=1)))
    row = Sample(list(range(40, 60)), [False] + [True] * 19)
    [whole] = report_tokens(student, teacher, [row])
    monkeypatch.setattr(inspect, "CHUNK_ELEMENTS", 3 * 259)
    [parts] = report_tokens(student, teacher, [row])
    assert len(parts) == 19
    for one, other in zip(parts, whole, strict=True):
        assert (one.text, one.kl) == (other.text, pytest.approx(other.kl, rel=1e-4))
        for mine, theirs in ((one.student, other.student), (one.teacher, other.teacher)):
            assert [t for t, _ in mine] == [t for t, _ in theirs]
            assert [p for _, p in mine] == pytest.approx([p for _, p in theirs], rel=1e-4)
