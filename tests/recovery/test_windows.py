from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.errors import RecoverError
from recovery.samples import Sample
from recovery.states import Documents, ShuffledOrder

END, BOS = 0, 10
documents = st.lists(st.lists(st.integers(1, 9), max_size=12), min_size=1, max_size=8)


def windows_of_whole_stream(texts: list[list[int]], window: int, seed: int) -> list[list[int]]:
    order = [i for _, i in ShuffledOrder(len(texts), seed).take(0, len(texts))]
    stream = [token for i in order for token in [*texts[i], END]]
    return [stream[i : i + window + 1] for i in range(0, len(stream) - 1, window)]


@settings(deadline=None)
@given(documents, st.integers(1, 9), st.integers(0, 3))
def test_lazy_windows_equal_those_of_the_whole_stream(texts: list[list[int]], window: int, seed: int) -> None:
    expected = windows_of_whole_stream(texts, window, seed)
    if not expected:
        return
    states = Documents(texts, END, window=window, rows=1, seed=seed)
    assert list(states.windows) == expected
    assert states.tokens == sum(len(w) - 1 for w in expected)


def test_documents_are_read_in_pieces() -> None:
    slices: list[Any] = []

    class RecordingList(list[int]):
        def __getitem__(self, index: Any) -> Any:
            slices.append(index)
            return super().__getitem__(index)

    states = Documents([RecordingList(range(1, 10_001))], END, window=4, rows=2)
    states.draw(None, 0)  # type: ignore[arg-type]
    assert len(slices) == 2
    assert all(part.stop - part.start == 5 for part in slices)


def one_epoch(texts: list[list[int]], window: int, **options: Any) -> list[Sample]:
    no_student: Any = None
    windows = len(Documents(texts, END, window=window, rows=1, **options).windows)
    return Documents(texts, END, window=window, rows=windows, **options).draw(no_student, 0)


@settings(deadline=None)
@given(documents, st.integers(2, 9), st.integers(0, 3))
def test_rows_start_with_the_bos_and_are_no_longer_for_it(texts: list[list[int]], window: int, seed: int) -> None:
    if sum(map(len, texts)) + len(texts) < 2:
        return
    rows = one_epoch(texts, window, begin_id=BOS, seed=seed)
    plain = one_epoch(texts, window - 1, seed=seed)
    assert [row.tokens for row in rows] == [[BOS, *row.tokens] for row in plain]
    assert [row.targets for row in rows] == [[False, *row.targets] for row in plain]
    assert max(len(row.tokens) for row in rows) <= window + 1


@settings(deadline=None)
@given(documents, st.integers(1, 9), st.integers(0, 3))
def test_without_a_bos_the_rows_are_the_windows(texts: list[list[int]], window: int, seed: int) -> None:
    expected = windows_of_whole_stream(texts, window, seed)
    if not expected:
        return
    rows = one_epoch(texts, window, seed=seed)
    assert sorted(row.tokens for row in rows) == sorted(expected)
    assert all(row.targets == [False] + [True] * (len(row.tokens) - 1) for row in rows)


def test_a_window_needs_room_beside_the_bos() -> None:
    with pytest.raises(RecoverError, match="longer"):
        Documents([[1, 2, 3]], END, window=1, rows=1, begin_id=BOS)
