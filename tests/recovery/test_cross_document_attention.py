"""Without cross-document attention, each document gives the states and gradient that it gives alone."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from recovery.models.students import Student
from recovery.objectives import CrossEntropy
from recovery.samples import Batch, Sample
from recovery.signals import Labels
from recovery.states import Documents
from recovery.train import Plan
from tests.models import tiny_student
from tests.recovery.test_train import gradient
from tests.recovery.test_windows import END, documents

TEXTS = [[5, 6, 7, 8, 9] * 5, [11, 12], [], [21, 22, 23, 21], [31]]  # 32 targets, so that their mean is tolerance
WHOLE = {"window": sum(len(text) + 1 for text in TEXTS), "rows": 1}


@settings(deadline=None)
@given(documents, st.integers(1, 9), st.integers(0, 3))
def test_pieces_split_a_window_at_the_ends_of_documents(texts: list[list[int]], window: int, seed: int) -> None:
    if not sum(map(len, texts)) + len(texts) > 1:
        return
    windows = Documents(texts, END, window=window, rows=1, seed=seed).windows
    for i in range(len(windows)):
        pieces = windows.pieces(i)
        assert [token for piece in pieces for token in piece] == windows[i]
        assert all(piece and END not in piece[:-1] for piece in pieces)
        assert all(piece[-1] == END for piece in pieces[:-1])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_states_and_gradient_equal_those_of_each_document_alone(
    tmp_path: Path, dtype: torch.dtype, tolerance: float
) -> None:
    student = tiny_student(tmp_path)
    student.model.to(dtype)
    drawn = Documents(TEXTS, END, **WHOLE, cross_document_attention=False).draw(student, 0)
    assert sorted(row.tokens for row in drawn) == sorted([*text, END] for text in TEXTS)
    batch = Batch.collate(drawn, student.chat.pad_id)
    alone = [_alone(student, [*row.tokens]) for row in drawn]
    torch.testing.assert_close(student.hidden(batch), torch.cat(alone), rtol=tolerance, atol=tolerance)

    targets = torch.tensor([token for row in drawn for token in row.tokens[1:]])
    assert len(targets) == 32
    cross_entropy(student.head.logits(torch.cat(alone)), targets).backward()
    reference = torch.cat([p.grad.flatten() for p in student.trainable() if p.grad is not None])
    assert reference.norm() > 0
    result = gradient(student, Plan(1, 0.0, clip_norm=1e9), CrossEntropy(), Labels(), drawn)
    assert float((result - reference).norm() / reference.norm()) < tolerance


def test_with_cross_document_attention_a_token_attends_to_the_previous_document(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    (row,) = Documents(TEXTS, END, **WHOLE).draw(student, 0)
    last = row.tokens[row.tokens.index(END) + 1 :]
    together = student.hidden(Batch.collate([row], student.chat.pad_id))[-len(last) + 1 :]
    assert not torch.allclose(together, _alone(student, last), atol=1e-2)


def test_a_draw_does_not_depend_on_earlier_draws(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)

    def documents_states() -> Documents:
        return Documents(TEXTS * 9, END, window=7, rows=3, seed=2, cross_document_attention=False)

    unbroken = documents_states()
    for step in range(40):
        assert documents_states().draw(student, step) == unbroken.draw(student, step)


def _alone(student: Student, tokens: list[int]) -> Tensor:
    return student.hidden(Batch.collate([Sample(tokens, [False] + [True] * (len(tokens) - 1))], student.chat.pad_id))
