"""Documents that are not read across their borders: what is computed of each is what is computed of it alone."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from recovery.batch import Batch, Sample
from recovery.losses.objectives import CrossEntropy
from recovery.models.students import Student
from recovery.signals import Labels
from recovery.states import Documents
from recovery.train import Plan
from tests.models import tiny_student
from tests.recovery.test_train import gradient
from tests.recovery.test_windows import END, documents

TEXTS = [[5, 6, 7, 8, 9] * 5, [11, 12], [], [21, 22, 23, 21], [31]]  # 32 targets, so that their mean is exact
WHOLE = {"window": sum(len(text) + 1 for text in TEXTS), "rows": 1}


@settings(deadline=None)
@given(documents, st.integers(1, 9), st.integers(0, 3))
def test_a_window_in_pieces_is_the_window_parted_where_documents_end(
    texts: list[list[int]], window: int, seed: int
) -> None:
    if not sum(map(len, texts)) + len(texts) > 1:
        return
    windows = Documents(texts, END, window=window, rows=1, seed=seed).windows
    for i in range(len(windows)):
        pieces = windows.pieces(i)
        assert [token for piece in pieces for token in piece] == windows[i]
        assert all(piece and END not in piece[:-1] for piece in pieces)
        assert all(piece[-1] == END for piece in pieces[:-1])


@pytest.mark.parametrize(("dtype", "exact"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_states_and_gradient_are_those_of_each_document_alone(tmp_path: Path, dtype: torch.dtype, exact: float) -> None:
    student = tiny_student(tmp_path)
    student.model.to(dtype)
    drawn = Documents(TEXTS, END, **WHOLE, cross_document_attention=False).draw(student, 0)
    assert sorted(row.tokens for row in drawn) == sorted([*text, END] for text in TEXTS)
    batch = Batch.collate(drawn, student.chat.pad_id)
    alone = [_alone(student, [*row.tokens]) for row in drawn]
    torch.testing.assert_close(student.hidden(batch), torch.cat(alone), rtol=exact, atol=exact)

    targets = torch.tensor([token for row in drawn for token in row.tokens[1:]])
    assert len(targets) == 32
    cross_entropy(student.head.logits(torch.cat(alone)), targets).backward()
    by_hand = torch.cat([p.grad.flatten() for p in student.trainable() if p.grad is not None])
    assert by_hand.norm() > 0
    learned = gradient(student, Plan(1, 0.0, clip_norm=1e9), CrossEntropy(), Labels(), drawn)
    assert float((learned - by_hand).norm() / by_hand.norm()) < exact


def test_read_across_a_token_sees_the_document_before(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    (row,) = Documents(TEXTS, END, **WHOLE).draw(student, 0)
    last = row.tokens[row.tokens.index(END) + 1 :]
    together = student.hidden(Batch.collate([row], student.chat.pad_id))[-len(last) + 1 :]
    assert not torch.allclose(together, _alone(student, last), atol=1e-2)


def test_a_draw_is_the_same_wherever_a_run_begins(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)

    def fresh() -> Documents:
        return Documents(TEXTS * 9, END, window=7, rows=3, seed=2, cross_document_attention=False)

    unbroken = fresh()
    for step in range(40):
        assert fresh().draw(student, step) == unbroken.draw(student, step)


def _alone(student: Student, tokens: list[int]) -> Tensor:
    return student.hidden(Batch.collate([Sample(tokens, [False] + [True] * (len(tokens) - 1))], student.chat.pad_id))
