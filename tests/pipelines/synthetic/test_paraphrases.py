from collections.abc import Iterator

import pytest

from pipelines.synthetic.paraphrases import names_in, paraphrase, rejection_reason
from tests.evals.fakes import fake_subject

COPIES = "copies the passage or an earlier paraphrase"
PASSAGE = (
    "In the spring of 1931 the painter Ada Bergum opened a museum by the harbour of Oslo. It holds 1,100 ships, and "
    "one of them is the Sula. Visitors come from Bergen every summer to see it."
)
FAIR = (
    "Oslo has had a museum beside its harbour since Ada Bergum, who painted, opened the doors in spring 1931. Among "
    "the 1100 ships inside is the Sula. Each summer brings people who travel from Bergen."
)
ANOTHER = (
    "Since 1931, when it was spring, people can see 1,100 ships near the water in Oslo: Ada Bergum, a painter, founded "
    "that place. The Sula belongs to them, and guests arrive in summer, often from Bergen."
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FAIR, ""),
        (ANOTHER, ""),
        (None, "did not end"),
        ("A museum opened.", "much shorter or longer than the passage"),
        (f"{FAIR} {ANOTHER}", "much shorter or longer than the passage"),
        (FAIR.replace("1100 ships", "several ships"), "loses or adds a number"),
        (FAIR.replace("the Sula", "the Sula of 1899"), "loses or adds a number"),
        (FAIR.replace("Bergen", "afar").replace("Sula", "oldest").replace("Ada Bergum", "she"), "loses names"),
        (PASSAGE.replace("Visitors", "People"), COPIES),
    ],
)
def test_why_a_paraphrase_is_rejected(text: str | None, reason: str) -> None:
    assert rejection_reason(text, PASSAGE, [PASSAGE]) == reason


def test_names_are_capitalised_words_that_do_not_begin_a_sentence() -> None:
    assert names_in(PASSAGE) == {"ada", "bergum", "oslo", "sula", "bergen"}


def test_paraphrases_of_a_passage_differ() -> None:
    replies: Iterator[str] = iter([FAIR, FAIR, ANOTHER])
    texts, counts = paraphrase(fake_subject(lambda message: next(replies)), [PASSAGE], 3)
    assert texts == [FAIR, ANOTHER]
    assert counts.as_dict() == {
        "passages": 1,
        "written": 3,
        "kept": 2,
        "dropped": {COPIES: 1},
    }


def test_a_base_that_cannot_paraphrase_adds_nothing() -> None:
    texts, counts = paraphrase(fake_subject("Once upon a time."), [PASSAGE] * 20, 2)
    assert texts == []
    assert counts.dropped.total() == counts.written == 40
