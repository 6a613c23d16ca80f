import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from recovery.engines import COPIES, MAX_PERIOD, MIN_PERIOD, Sampling, continue_loop, loop_period
from recovery.engines.transformers import TransformersEngine
from tests.models import tiny_student


@given(st.lists(st.integers(0, 99), max_size=50), st.integers(1, MAX_PERIOD), st.integers(0, 400))
def test_a_loop_is_found_and_continued_exactly(start: list[int], period: int, more: int) -> None:
    pattern = random.Random(period).choices(range(1000), k=period)
    copies = COPIES * max(1, -(-MIN_PERIOD // period))
    begun = start + pattern * copies
    found = loop_period(begun)
    assert found
    assert found % period == 0
    full = start + pattern * (copies + more // period + 2)
    assert continue_loop(begun, len(begun) + more) == full[: len(begun) + more]


@given(st.lists(st.integers(0, 10**6), max_size=300, unique=True))
def test_text_without_a_loop_stays_as_it_is(tokens: list[int]) -> None:
    assert loop_period(tokens) is None
    assert continue_loop(tokens, 1000) == tokens


def test_too_few_copies_are_no_loop() -> None:
    assert loop_period(list(range(20)) * (COPIES - 1)) is None
    assert loop_period([7] * (MIN_PERIOD * COPIES - 1)) is None


def test_the_engine_ends_a_reply_soon_after_it_begins_to_loop(tmp_path: Path) -> None:
    student = tiny_student(tmp_path)
    prompts = [student.chat.prompt(f"Say {word}") for word in ("yes", "no", "maybe")]
    engine, length = TransformersEngine(student), 400
    full = engine.generate(prompts, Sampling(length, temperature=0))
    early = engine.generate(prompts, Sampling(length, temperature=0, end_loops=True))
    for whole, ended in zip(full, early, strict=True):
        assert ended.finished == whole.finished
        assert ended.tokens == whole.tokens[: len(ended.tokens)]
    looping = [(w, e) for w, e in zip(full, early, strict=True) if len(e.tokens) < len(w.tokens)]
    assert looping
    assert all(loop_period(ended.tokens) is not None for _, ended in looping)
