from hypothesis import given
from hypothesis import strategies as st

from pipelines.documents.passages import MAX_WORDS, MIN_WORDS, interleaved_passages, passages_of

paragraph = st.integers(1, 400).map(lambda n: " ".join(f"w{i}{'.' if i % 9 == 0 else ''}" for i in range(n)))


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


def test_a_long_word_is_one_word_where_passages_need_some() -> None:
    assert list(passages_of("x" * 10_000, min_words=2)) == []


def test_passages_of_a_script_without_spaces_are_as_long_as_others() -> None:
    paragraphs = ["天地玄黄宇宙洪荒。日月盈昃辰宿列张。" * 5 for _ in range(12)]
    passages = [passage for _, passage in interleaved_passages(["\n\n".join(paragraphs)])]
    assert " ".join(passages).split() == paragraphs
    assert all(2 * MIN_WORDS <= len(passage) <= 400 for passage in passages)
    (one, *_), blob = passages_of("天地玄黄。" * 400), list(passages_of("x" * 100_000))
    assert len(one) <= 400
    assert " " not in one
    assert max(map(len, blob)) <= 45 * MAX_WORDS
    assert "".join("".join(blob).split()) == "x" * 100_000
