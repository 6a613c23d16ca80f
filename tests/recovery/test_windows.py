from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.states import Documents, Shuffled

END = 0
documents = st.lists(st.lists(st.integers(1, 9), max_size=12), min_size=1, max_size=8)


def windows_of_the_whole_stream(texts: list[list[int]], window: int, seed: int) -> list[list[int]]:
    order = [i for _, i in Shuffled(len(texts), seed).take(0, len(texts))]
    stream = [token for i in order for token in [*texts[i], END]]
    return [stream[i : i + window + 1] for i in range(0, len(stream) - 1, window)]


@settings(deadline=None)
@given(documents, st.integers(1, 9), st.integers(0, 3))
def test_windows_made_when_asked_for_are_the_whole_streams(texts: list[list[int]], window: int, seed: int) -> None:
    expected = windows_of_the_whole_stream(texts, window, seed)
    if not expected:
        return
    cut = Documents(texts, END, window=window, rows=1, seed=seed)
    assert list(cut.windows) == expected
    assert cut.tokens == sum(len(w) - 1 for w in expected)


def test_documents_are_read_by_the_piece() -> None:
    read: list[Any] = []

    class Watched(list[int]):
        def __getitem__(self, index: Any) -> Any:
            read.append(index)
            return super().__getitem__(index)

    cut = Documents([Watched(range(1, 10_001))], END, window=4, rows=2)
    cut.draw(None, 0)  # type: ignore[arg-type]
    assert len(read) == 2
    assert all(part.stop - part.start == 5 for part in read)
