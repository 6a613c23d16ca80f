from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.documents.text_store import Spool, copies


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["a b", "A  B\n", "ab", "c", "ä", "Ä", "ss", "ß", ""]), min_size=1, max_size=20))
def test_copies_are_all_but_the_first_of_texts_that_differ_in_case_and_white_space_alone(texts: list[str]) -> None:
    spool = Spool()
    for text in texts:
        spool.add(text, 0)
    spool.flush()
    flat = [" ".join(text.casefold().split()) for text in texts]
    assert sorted(copies(spool)) == [i for i, text in enumerate(flat) if text in flat[:i]]
