import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.documents.near_duplicates import Signatures, alike, copies, near_copies, runs
from pipelines.documents.text_store import Spool


def prose(seed: int, words: int) -> list[str]:
    dice = random.Random(seed)
    return ["".join(dice.choices("abcdefgh", k=dice.randint(2, 9))) for _ in range(words)]


def test_case_and_spacing_make_no_difference_and_a_word_makes_a_small_one() -> None:
    text = prose(0, 300)
    assert alike(runs(" ".join(text)), runs("\n ".join(text).upper())) == 1.0
    changed = [*text[:150], "other", *text[151:]]
    assert 0.95 < alike(runs(" ".join(text)), runs(" ".join(changed))) < 1.0
    assert alike(runs(" ".join(text)), runs(" ".join(prose(1, 300)))) == 0.0


def test_scripts_without_spaces_have_runs_too() -> None:
    dice = random.Random(0)
    text = "".join(chr(dice.randrange(0x4E00, 0x9000)) for _ in range(200))
    assert len(runs(text)) > 150
    assert alike(runs(text), runs(text[:100] + "新" + text[101:])) > 0.85


def test_near_copies_are_found_among_many_and_no_others() -> None:
    dice, spool, signatures = random.Random(0), Spool(), Signatures()
    originals = [prose(seed, dice.randint(250, 500)) for seed in range(150)]
    edited = [[*words[:-4], *prose(number + 999, 3)] for number, words in enumerate(originals)]
    halves = [[*words[: len(words) // 2], *prose(number + 2000, 150)] for number, words in enumerate(originals)]
    for number, words in enumerate([*originals, *edited, *halves]):
        spool.add(" ".join(words), 0)
        signatures.add(number, " ".join(words))
    spool.close_writing()
    found = near_copies(spool, signatures, set())
    assert found == {150 + number: number for number in range(150)}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", "ä", ""]), min_size=1, max_size=20))
def test_exact_copies_are_all_but_the_first(texts: list[str]) -> None:
    spool = Spool()
    for text in texts:
        spool.add(text, 0)
    spool.close_writing()
    assert sorted(copies(spool)) == [i for i, text in enumerate(texts) if text in texts[:i]]
