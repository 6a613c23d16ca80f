"""Is a reply right? Normalised match, token F1, and the last number said."""

import re
import unicodedata
from collections import Counter

ARTICLES = {"a", "an", "the"}
HEDGES = {"or", "nor", "neither", "not", "never"}  # beside the reference they take it back
DENIALS = {"cannot", "cant", "isnt", "wasnt", "arent", "werent"}  # before it; after it they may begin a sentence
PASSED_OVER = {"be", "been"}  # between such a word and the reference: "it cannot be blue"

# 3.5, 12:30, -5: each is one word. A date with two points is three, so that its year can be found.
OF_A_NUMBER = re.compile(r"(?<![\d.:])\d+(?P<mark>[.:])\d+(?![.:]?\d)|(?<![\w-])(?P<minus>-)(?=\d)")
NOTHING_MORE = re.compile(r"(?<=\d)\.00?(?![.:]?\d)")  # 5.00 is 5; where points group, 12.000 is not 12

# How many words that are not the question's may come before the reference. Enough for "I believe that it was …";
# a reply that lists candidates until one fits has only this many guesses.
WORDS_BEFORE = 8


def words(text: str) -> list[str]:
    """Lower case, without accents, punctuation and articles: what two spellings of one answer have in common."""
    text = unicodedata.normalize("NFKD", text).casefold().replace("\N{MINUS SIGN}", "-")
    text = re.sub(r"[\u0300-\u036f'’]|(?<=\d),(?=\d{3})", "", text)
    text = NOTHING_MORE.sub("", text)
    kept = {found.start(found.lastgroup or 0) for found in OF_A_NUMBER.finditer(text)}
    marked = "".join(" " if i not in kept and unicodedata.category(c)[0] in "PSZC" else c for i, c in enumerate(text))
    return [word for word in marked.split() if word not in ARTICLES]


def matches(reply: str, reference: str, question: str = "") -> bool:
    """Equal to the reference, or says it early, as whole words, without taking it back."""
    said, wanted = words(reply), words(reference)
    if not wanted:  # nothing but signs or an article: then it must be said exactly
        return reply.strip() == reference.strip()
    if said == wanted:
        return True
    start = _first(said, wanted)
    if start is None:
        return False
    before = [word for word in said[:start] if word not in words(question)]
    leading = [word for word in said[:start] if word not in PASSED_OVER]
    first, after = set(leading[-1:]), set(said[start + len(wanted) : start + len(wanted) + 1])
    return len(before) <= WORDS_BEFORE and not first & (HEDGES | DENIALS) and not after & HEDGES


def f1(reply: str, reference: str) -> float:
    """Overlap in words, as SQuAD counts it: a long list that holds the answer scores low."""
    said, wanted = words(reply), words(reference)
    shared = (Counter(said) & Counter(wanted)).total()
    if not shared:
        return float(said == wanted and reply.strip() == reference.strip())
    return 2 * shared / (len(said) + len(wanted))


def ends_on(reply: str, reference: str) -> bool:
    """The last number said is the reference: what comes before it is the way there."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", reply))
    try:
        return bool(numbers) and float(numbers[-1]) == float(reference.replace(",", ""))
    except ValueError:
        return matches(reply, reference)


def _first(said: list[str], wanted: list[str]) -> int | None:
    return next((i for i in range(len(said) - len(wanted) + 1) if said[i : i + len(wanted)] == wanted), None)
