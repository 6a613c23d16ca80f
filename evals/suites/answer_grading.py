"""Grade a reply against a reference answer: normalized match, token F1 and last number."""

import re
import unicodedata
from collections import Counter

ARTICLES = {"a", "an", "the"}
HEDGES = {"or", "nor"}  # next to the reference they retract it
# Only before it: after it they deny something else, or start a sentence.
DENIALS = {"neither", "not", "never", "cannot", "cant", "isnt", "wasnt", "arent", "werent"}
SKIPPED = {"be", "been"}  # between such a word and the reference: "it cannot be blue"

# 3.5, 12:30, -5: each is one word. A date with two points is three, so that its year can be matched.
NUMBER_SIGNS = re.compile(r"(?<![\d.:])\d+(?P<mark>[.:])\d+(?![.:]?\d)|(?<![\w-])(?P<minus>-)(?=\d)")
ZERO_DECIMALS = re.compile(r"(?<=\d)\.00?(?![.:]?\d)")  # 5.00 is 5; but 12.000, with digit grouping, is not 12

# How many words that are not in the question may come before the reference. Enough for "I believe that it was …",
# but a reply that lists candidates gets only this many guesses.
WORDS_BEFORE = 8


def normalized_words(text: str) -> list[str]:
    """Split into lower-case words without accents, punctuation and articles."""
    text = unicodedata.normalize("NFKD", text).casefold().replace("\N{MINUS SIGN}", "-")
    text = re.sub(r"[\u0300-\u036f'’]|(?<=\d),(?=\d{3})", "", text)
    text = ZERO_DECIMALS.sub("", text)
    signs = {match.start(match.lastgroup or 0) for match in NUMBER_SIGNS.finditer(text)}
    spaced = "".join(" " if i not in signs and unicodedata.category(c)[0] in "PSZC" else c for i, c in enumerate(text))
    return [word for word in spaced.split() if word not in ARTICLES]


def matches(reply: str, reference: str, question: str = "") -> bool:
    """Whether the reply equals the reference or states it early, as whole words and without retracting it."""
    reply_words, target = normalized_words(reply), normalized_words(reference)
    if not target:  # the reference is only punctuation or an article, so it must match exactly
        return reply.strip() == reference.strip()
    if reply_words == target:
        return True
    start = _find(reply_words, target)
    if start is None:
        return False
    asked = set(normalized_words(question))
    before = [word for word in reply_words[:start] if word not in asked]
    leading = [word for word in reply_words[:start] if word not in SKIPPED]
    previous, following = set(leading[-1:]), set(reply_words[start + len(target) : start + len(target) + 1])
    return len(before) <= WORDS_BEFORE and not previous & (HEDGES | DENIALS) and not following & HEDGES


def f1(reply: str, reference: str) -> float:
    """Word overlap, as in SQuAD: a long list that contains the answer scores low."""
    reply_words, target = normalized_words(reply), normalized_words(reference)
    shared = (Counter(reply_words) & Counter(target)).total()
    if not shared:
        return float(reply_words == target and reply.strip() == reference.strip())
    return 2 * shared / (len(reply_words) + len(target))


def last_number_matches(reply: str, reference: str) -> bool:
    """Whether the reply's last number is the reference; earlier numbers are working steps."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", reply))
    try:
        return bool(numbers) and float(numbers[-1]) == float(reference.replace(",", ""))
    except ValueError:
        return matches(reply, reference)


def _find(words: list[str], target: list[str]) -> int | None:
    """Index of the first occurrence of `target`."""
    return next((i for i in range(len(words) - len(target) + 1) if words[i : i + len(target)] == target), None)
