from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.documents.passages import MAX_WORDS, MIN_WORDS, interleaved_passages, passages_of

paragraph = st.integers(1, 400).map(lambda n: " ".join(f"w{i}{'.' if i % 9 == 0 else ''}" for i in range(n)))


@settings(deadline=None)
@given(st.lists(paragraph, max_size=8))
def test_passages_have_the_whole_text_and_a_maximum_length(paragraphs: list[str]) -> None:
    text = "\n\n".join(paragraphs)
    passages = list(passages_of(text))
    assert " ".join(passages).split() == text.split()
    assert all(0 < len(passage.split()) <= MAX_WORDS for passage in passages)


def test_a_few_of_each_text_come_before_more_of_the_first() -> None:
    texts = ["\n\n".join(f"{text} {i} " + "word " * 150 for i in range(10)) for text in "abc"]
    texts.append("too short")
    passages = [*interleaved_passages(texts)]
    assert sorted(number for number, _ in passages[:12]) == [0] * 4 + [1] * 4 + [2] * 4
    assert len(passages) == len({passage for _, passage in passages}) == 30
    assert all(len(passage.split()) >= MIN_WORDS for _, passage in passages)
    assert passages == [*interleaved_passages(texts)] != [*interleaved_passages(texts, seed=1)]
