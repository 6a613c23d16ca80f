from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.documents.passages import FEWEST_WORDS, MOST_WORDS, passages_of, spread

paragraph = st.integers(1, 400).map(lambda n: " ".join(f"w{i}{'.' if i % 9 == 0 else ''}" for i in range(n)))


@settings(deadline=None)
@given(st.lists(paragraph, max_size=8))
def test_passages_are_the_whole_text_in_pieces_that_are_not_too_long(paragraphs: list[str]) -> None:
    text = "\n\n".join(paragraphs)
    passages = list(passages_of(text))
    assert " ".join(passages).split() == text.split()
    assert all(0 < len(passage.split()) <= MOST_WORDS for passage in passages)


def test_a_few_of_each_text_come_before_more_of_the_first() -> None:
    texts = ["\n\n".join(f"{text} {i} " + "word " * 150 for i in range(10)) for text in "abc"]
    found = [*spread([*texts, "too short"])]
    assert sorted(number for number, _ in found[:12]) == [0] * 4 + [1] * 4 + [2] * 4
    assert len(found) == len({passage for _, passage in found}) == 30
    assert all(len(passage.split()) >= FEWEST_WORDS for _, passage in found)
    assert found == [*spread([*texts, "too short"])] != [*spread([*texts, "too short"], seed=1)]
