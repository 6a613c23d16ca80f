import random

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.documents.text_store import Signatures, Spool, exact_copies, near_copies, shingles, similarity


def prose(seed: int, words: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices("abcdefgh", k=rng.randint(2, 9))) for _ in range(words)]


def test_case_and_spacing_make_no_difference_and_a_word_makes_a_small_one() -> None:
    text = prose(0, 300)
    assert similarity(shingles(" ".join(text)), shingles("\n ".join(text).upper())) == 1.0
    changed = [*text[:150], "other", *text[151:]]
    assert 0.95 < similarity(shingles(" ".join(text)), shingles(" ".join(changed))) < 1.0
    assert similarity(shingles(" ".join(text)), shingles(" ".join(prose(1, 300)))) == 0.0


def test_scripts_without_spaces_have_shingles() -> None:
    rng = random.Random(0)
    text = "".join(chr(rng.randrange(0x4E00, 0x9000)) for _ in range(200))
    assert len(shingles(text)) > 150
    assert similarity(shingles(text), shingles(text[:100] + "新" + text[101:])) > 0.85


def test_near_copies_are_found_among_many_and_no_others() -> None:
    rng, spool, signatures = random.Random(0), Spool(), Signatures()
    originals = [prose(seed, rng.randint(250, 500)) for seed in range(150)]
    edited = [[*words[:-4], *prose(number + 999, 3)] for number, words in enumerate(originals)]
    halves = [[*words[: len(words) // 2], *prose(number + 2000, 150)] for number, words in enumerate(originals)]
    for number, words in enumerate([*originals, *edited, *halves]):
        spool.add(" ".join(words), 0)
        signatures.add(number, " ".join(words))
    spool.flush()
    copies = near_copies(spool, signatures, set())
    assert copies == {150 + number: number for number in range(150)}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", "ä", ""]), min_size=1, max_size=20))
def test_exact_copies_are_all_but_the_first_of_equal_texts(texts: list[str]) -> None:
    spool = Spool()
    for text in texts:
        spool.add(text, 0)
    spool.flush()
    assert sorted(exact_copies(spool)) == [i for i, text in enumerate(texts) if text in texts[:i]]
