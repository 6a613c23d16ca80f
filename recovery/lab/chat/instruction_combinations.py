"""Which instructions can be combined: IFEval's own conflicts, and more that arise in short answers."""

from random import Random

from recovery.lab.chat.instruction_kinds import CONSTRAINED, KINDS, REPEAT
from recovery.lab.chat.topics import Split, split_of
from recovery.lab.text_tables import words

SIZES = (1, 2, 3)
WEIGHTS = {"train": (35, 35, 30), "heldout": (45, 35, 20), "natural": (60, 30, 10)}  # training has more of the hardest


def _kinds(text: str) -> set[str]:
    """Return instruction kinds by the last part of their names."""
    short = {kind.split(":")[1]: kind for kind in KINDS}
    return {short[word] for word in words(text)}


LAYOUTS = _kinds("""
    number_bullet_lists number_paragraphs nth_paragraph_first_word multiple_sections two_responses json_format
    number_sentences
""")
ONLY_WITH = {
    CONSTRAINED: set(),
    REPEAT: _kinds("existence title no_comma"),
    "detectable_format:json_format": _kinds("forbidden_words existence"),
    "combination:two_responses": _kinds("forbidden_words existence title no_comma"),
    "language:response_language": _kinds("number_bullet_lists number_paragraphs no_comma quotation title"),
    "change_case:english_capital": LAYOUTS
    | _kinds("""
        number_placeholders postscript title letter_frequency forbidden_words no_comma quotation
        number_highlighted_sections
    """),
}
NEVER_TOGETHER = [
    LAYOUTS,
    LAYOUTS - _kinds("nth_paragraph_first_word") | _kinds("number_highlighted_sections"),
    _kinds("number_words number_sentences english_lowercase"),
    _kinds("number_sentences english_capital"),
    _kinds("english_capital english_lowercase capital_word_frequency"),
    _kinds("title quotation nth_paragraph_first_word"),
    *(
        _kinds(f"multiple_sections {case}")
        for case in words("english_lowercase english_capital capital_word_frequency")
    ),
]


def compatible(first: str, second: str) -> bool:
    pair = {first, second}
    if len(pair) == 1 or any(pair <= group for group in NEVER_TOGETHER):
        return False
    return second in ONLY_WITH.get(first, KINDS) and first in ONLY_WITH.get(second, KINDS)


def combination(rng: Random, split: Split) -> list[str]:
    """Return one to three compatible kinds. Single kinds are in both splits: only combinations are held out."""
    size = rng.choices(SIZES, WEIGHTS[split])[0]
    while True:
        kinds: list[str] = []
        while len(kinds) < size and (free := [k for k in KINDS if all(compatible(k, other) for other in kinds)]):
            kinds.append(rng.choice(free))
        if size == 1 or (len(kinds) == size and split in ("natural", combination_split(kinds))):
            return kinds


def combination_split(kinds: list[str]) -> Split:
    """Return the split of a combination by its content; about one in ten is held out."""
    return split_of("+".join(sorted(kinds)))
