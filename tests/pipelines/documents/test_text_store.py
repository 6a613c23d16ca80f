from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.documents.text_store import Texts


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["a b", "A  B\n", "ab", "c", "ä", "Ä", "ss", "ß", ""]), min_size=1, max_size=20))
def test_copies_are_all_but_the_first_of_texts_that_differ_in_case_and_white_space_alone(added: list[str]) -> None:
    texts = Texts()
    for text in added:
        texts.add(text, 0)
    texts.flush()
    flat = [" ".join(text.casefold().split()) for text in added]
    assert list(texts) == [text for i, text in enumerate(added) if flat[i] not in flat[:i]]
    assert texts.copies == len(added) - len(texts)
