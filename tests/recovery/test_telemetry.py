from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery import telemetry
from recovery.models.students import Student
from recovery.samples import Sample
from recovery.teachers import FrozenTeacher
from recovery.telemetry import PIECE, repetition, report_tokens, rollout_metrics

ROWS = [Sample([7, 8, 9, 10], [False, False, True, True]), Sample([20, 21, 22], [False, True, True])]


def test_each_target_is_reported_with_both_models_likeliest_tokens(student: Student, teacher: FrozenTeacher) -> None:
    rows = report_tokens(student, teacher, ROWS)
    assert [len(row) for row in rows] == [2, 2]
    for row, report in zip(ROWS, rows, strict=True):
        targets = [t for t, is_target in zip(row.tokens, row.targets, strict=True) if is_target]
        assert [token.text for token in report] == [student.chat.tokenizer.decode([t]) for t in targets]
        for token in report:
            assert token.kl > 0
            for choices in (token.student, token.teacher):
                probabilities = [p for _, p in choices]
                assert len(probabilities) == 3
                assert probabilities == sorted(probabilities, reverse=True)
                assert sum(probabilities) <= 1


def test_a_report_in_chunks_is_equal(student: Student, teacher: FrozenTeacher, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Sample(list(range(40, 60)), [False] + [True] * 19)
    [whole] = report_tokens(student, teacher, [row])
    monkeypatch.setattr(telemetry, "CHUNK_ELEMENTS", 3 * 259)
    [parts] = report_tokens(student, teacher, [row])
    assert len(parts) == 19
    for part, expected in zip(parts, whole, strict=True):
        assert (part.text, part.kl) == (expected.text, pytest.approx(expected.kl, rel=1e-4))
        for ours, theirs in ((part.student, expected.student), (part.teacher, expected.teacher)):
            assert [t for t, _ in ours] == [t for t, _ in theirs]
            assert [p for _, p in ours] == pytest.approx([p for _, p in theirs], rel=1e-4)


def test_rollouts_are_counted_and_other_rows_are_not() -> None:
    reply = Sample([7, 8, 9], [False, True, True], logprobs=[-1.0, -2.0], reward=1.0)
    metrics = rollout_metrics([reply, replace(reply, reward=0.0), Sample([7, 8], [False, True])])
    assert (metrics["rollouts"], metrics["rollout_length"], metrics["reward"]) == (2, 2, 0.5)


def test_a_loop_repeats_nearly_all_of_itself() -> None:
    loop = [5, 6, 7, 8] * 64
    assert repetition(loop) > 0.98
    assert repetition(list(range(200)) + loop) > 0.5


@given(st.lists(st.integers(0, 9), max_size=60))
def test_it_is_a_share_and_zero_without_repeated_pieces(tokens: list[int]) -> None:
    assert 0 <= repetition(tokens) < 1
    assert repetition(tokens[:PIECE]) == 0
    assert repetition(list(range(len(tokens)))) == 0
