import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.engines import Sampling
from recovery.engines.transformers import TransformersEngine
from recovery.errors import RecoverError
from recovery.models.students import Student, load_student
from recovery.objectives import CrossEntropy
from recovery.samples import Sample
from recovery.signals import Labels
from recovery.states import Documents, FixedRows, Prompt, Rollouts, ShuffledOrder, TeacherContinuations
from recovery.train import Plan, train
from tests.models import save_tiny, tiny_student

END, BOS = 0, 10
NO_STUDENT: Any = None
documents = st.lists(st.lists(st.integers(1, 9), max_size=12), min_size=1, max_size=8)


def windows_of_whole_stream(texts: list[list[int]], window: int, seed: int) -> list[list[int]]:
    order = [i for _, i in ShuffledOrder(len(texts), seed).take(0, len(texts))]
    stream = [token for i in order for token in [*texts[i], END]]
    return [stream[i : i + window + 1] for i in range(0, len(stream) - 1, window)]


@given(documents, st.integers(1, 9), st.integers(0, 3))
def test_the_rows_are_the_windows_of_the_whole_stream(texts: list[list[int]], window: int, seed: int) -> None:
    expected = windows_of_whole_stream(texts, window, seed)
    if not expected:
        return
    states = Documents(texts, END, window=window, rows=1, seed=seed)
    assert list(states.windows) == expected
    assert states.tokens == sum(len(w) - 1 for w in expected)
    rows = one_epoch(texts, window, seed=seed)
    assert sorted(row.tokens for row in rows) == sorted(expected)
    assert all(row.targets == [False] + [True] * (len(row.tokens) - 1) for row in rows)


def test_documents_are_read_in_pieces() -> None:
    slices: list[Any] = []

    class RecordingList(list[int]):
        def __getitem__(self, index: Any) -> Any:
            slices.append(index)
            return super().__getitem__(index)

    states = Documents([RecordingList(range(1, 10_001))], END, window=4, rows=2)
    states.draw(NO_STUDENT, 0)
    assert len(slices) == 2
    assert all(part.stop - part.start == 5 for part in slices)


def one_epoch(texts: list[list[int]], window: int, **options: Any) -> list[Sample]:
    windows = len(Documents(texts, END, window=window, rows=1, **options).windows)
    return Documents(texts, END, window=window, rows=windows, **options).draw(NO_STUDENT, 0)


@given(documents, st.integers(3, 9), st.integers(0, 3))
def test_documents_and_rows_start_with_the_bos(texts: list[list[int]], window: int, seed: int) -> None:
    rows = one_epoch(texts, window, begin_id=BOS, seed=seed)
    plain = one_epoch([[BOS, *text] for text in texts], window - 1, seed=seed)
    assert [row.tokens for row in rows] == [[BOS] * (row.tokens[0] != BOS) + row.tokens for row in plain]
    targets = [token for row in rows for token, target in zip(row.tokens, row.targets, strict=True) if target]
    assert Counter(targets) == Counter(token for text in texts for token in [*text, END])
    assert len(targets) == Documents(texts, END, window=window, rows=1, begin_id=BOS).tokens
    assert all(any(row.targets) and len(row.tokens) <= window + 1 for row in rows)


def test_a_separator_that_is_the_bos_stands_once_between_documents() -> None:
    rows = one_epoch([[1, 2], [3, 4]], 9, begin_id=END, seed=1)
    assert [row.tokens for row in rows] in ([[END, 1, 2, END, 3, 4, END]], [[END, 3, 4, END, 1, 2, END]])
    assert [row.targets for row in rows] == [[False, False, True, True, True, True, True]]


def test_a_window_needs_room_beside_the_bos() -> None:
    with pytest.raises(RecoverError, match="longer"):
        Documents([[1, 2, 3]], END, window=2, rows=1, begin_id=BOS)


def item(n: int, seed: int, position: int) -> tuple[int, int]:
    epoch, place = divmod(position, n)
    order = list(range(n))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return epoch, order[place]


@given(st.integers(1, 500), st.integers(1, 9))
def test_a_share_of_a_row_that_rounding_made_smaller_is_a_row(steps: int, rows: int) -> None:
    states = ShuffledOrder(7, 0)
    drawn = [len(states.of_step(step, rows * (1 - 2**-53))) for step in range(steps)]
    assert drawn == [rows] * steps


READS = st.lists(st.tuples(st.integers(-40, 40), st.integers(1, 25)), min_size=1, max_size=6)


@given(st.integers(1, 12), st.integers(0, 3), READS)
def test_a_draw_does_not_depend_on_those_before_it(n: int, seed: int, reads: list[tuple[int, int]]) -> None:
    order = ShuffledOrder(n, seed)
    for start, count in reads:
        assert order.take(start, count) == [item(n, seed, i) for i in range(start, start + count)]


def test_an_epoch_is_shuffled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled: list[str] = []

    class Counted(random.Random):
        def __init__(self, seed: str):
            shuffled.append(seed)
            super().__init__(seed)

    monkeypatch.setattr("recovery.states.Random", Counted)
    order = ShuffledOrder(10, 7)
    for start in range(0, 30, 3):  # some draws end in the next epoch
        order.take(start, 3)
    assert shuffled == ["7/0", "7/1", "7/2"]


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


def rollouts(student: Student, teacher_prompt: list[int] | None = None) -> Rollouts:
    prompts = [Prompt(f"say {i}", student.chat.prompt("say " + "it " * i), None, teacher_prompt) for i in range(1, 9)]
    return Rollouts(prompts, TransformersEngine(student), rows=16, max_new_tokens=LIMIT)


@pytest.mark.parametrize("of_turns", [False, True])
def test_a_separator_ends_rollouts_unless_they_are_turns_alone(student: Student, of_turns: bool) -> None:
    drawn = rollouts(student)
    drawn.max_new_tokens, drawn.of_turns = 100, of_turns
    ended = [row.tokens[-1] for step in range(2) for row in drawn.draw(student, step) if not row.truncated]
    assert ended
    assert (student.chat.separator in ended) != of_turns
    assert of_turns == (set(ended) <= student.chat.turn_ends)


@pytest.mark.parametrize("teacher_prompt", [None, [9, 8, 7, 6]])
def test_a_writer_goes_on_from_a_beginning(tmp_path: Path, student: Student, teacher_prompt: list[int] | None) -> None:
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


@given(thousandths=st.integers(50, 5000), items=st.integers(1, 7), before=st.integers(0, 2))
def test_a_fraction_of_a_row_is_drawn_so_often_on_average_and_each_item_in_turn(
    thousandths: int, items: int, before: int
) -> None:
    steps = 60
    states = FixedRows([Sample([i], [False]) for i in range(items)], rows=thousandths / 1000, seed=3)
    drawn = [sample.tokens[0] for step in range(steps) for sample in states.draw(NO_STUDENT, step)]
    assert len(drawn) == steps * thousandths // 1000
    assert drawn == [i for _, i in ShuffledOrder(items, 3).take(0, len(drawn))]
    shared = FixedRows(states.samples, rows=2, seed=3, before=before)
    taken = [i for _, i in ShuffledOrder(items, 3).take(5 * (2 + before) + before, 2)]
    assert [sample.tokens[0] for sample in shared.draw(NO_STUDENT, 5)] == taken
