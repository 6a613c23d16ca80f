"""Grade a reply against a reference answer: normalized match, token F1 and last number."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

ARTICLES = {"a", "an", "the"}
HEDGES = {"or", "nor"}  # next to the reference they retract it
# Only before it: after it they deny something else, or start a sentence.
DENIALS = {"neither", "not", "never", "cannot", "cant", "isnt", "wasnt", "arent", "werent"}
DENIALS_OF_TWO = {("rather", "than"), ("instead", "of"), ("no", "longer")}
SKIPPED = {"be", "been"}  # between such a word and the reference: "it cannot be blue"
PREPOSITIONS = {"at", "by", "for", "from", "in", "of", "on", "to"}  # the same: "not in 1871", but "not. In 1871"

# "No" is an answer where a reply starts with it, or before a stop: "I have no idea" does not say no.
NO = re.compile(
    r"(?im)^\W*no\b(?!\s+(?:answer|clue|data|idea|information|one)\b)|\banswer\W+(?:is\W+)?no\b|\bno\s*(?:[^\w\s]|$)"
)

# Thai, Lao, Burmese, Khmer, Japanese and Chinese have no spaces between words: each character is one here.
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff]")
UNSPACED_HEDGES = ("或", "还是", "還是", "หรือ", "또는", "혹은")
UNSPACED_DENIALS_BEFORE = ("不是", "并非", "並非", "ไม่ใช่")
UNSPACED_DENIALS_AFTER = ("ではない", "ではありません", "じゃない", "아니", "아닌", "아닙니다")
PARTICLES = re.compile(r"[\uac00-\ud7a3]+")  # Korean joins them to the word before

# An "a" at the end of a reference is no article: "Vitamin A". But it is in "Beautiful Mind, A".
LABELLED = re.compile(r"(?:^\W*|[^\W_][ -]+)a[^\w+#)-]*$", re.IGNORECASE)
# Where it is the whole reference: a capital before no word, since "A dog" says something else.
LABEL = re.compile(r"(?<![\w'’])A(?![\w'’+#-]| (?!is\b)\w)")

# 3.5, 12:30, 1/3, 10^5, 192.168.1.1, -5: each is one word. A date with two points is three, so that its year can be
# matched.
NUMBER = re.compile(
    r"(?<!\d)(?<!\d[.:/^])(?:\d+[.:]\d+|\d+(?:[.:]\d+){3,}|\d{1,3}/\d{1,3}|\d+\^-?\d+)(?![.:/^]?\d)|(?<![\w-])-(?=\d)"
)
# 1,234,567, 1 234 567, and 1.234.567 before a decimal comma.
GROUPED = re.compile(
    r"(?<!\d)(?<!\d[.,:/^])(?:[1-9]\d{0,2}(?:,\d{3})+(?!,?\d)|(?<!\d )[1-9]\d{0,2}(?: \d{3})+(?! ?\d)"
    r"|[1-9]\d{0,2}(?:\.\d{3})+(?=,\d+\b))"
)
# 12,5 is a decimal; but (1,2) is a pair, and 1,2,3 a list.
DECIMAL_COMMA = re.compile(r"(?<!\d)(?<!\d[.,:/^])(?!(?<=[(\[{])\d+,\d+[)\]}])(\d+),(\d+)(?![.,:/^]?\d)")
# What is written in one word or in several: U.S.A., e-mail, 50 km.
JOINT = re.compile(r"(?<=\b[^\W\d_])\. ?(?=[^\W\d_]\b)|(?<=[^\W\d_])-(?=[^\W\d_])|(?<=\d) (?=[^\W\d_])")
LAST_NUMBER = re.compile(  # the hyphen of 3-5 is no minus, and 1/3 is one number, but no date is
    r"(?:(?<![\w-])-)?(?:(?<![\d./])\d+/[1-9]\d*(?![\d/]|\.\d)|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
)
# C++, C#, and C++17 in two words; but no sum: x+(y-1).
LETTER_SIGNS = re.compile(r"(?<=[^\W\d_])(?:\+{1,2}|#)(?=[\s\d.,;:!?)\]}>*_`\"/”“»。，、—–-]|$)")
FRACTION = re.compile(r"((?<!\d)\d{1,999})?([¼-¾⅐-⅞])")  # a longer loop of digits is no number
# Letters that have no accent to be left out, as they are often written without them.
PLAIN_LETTERS = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th", "ı": "i"})
SIGNS = {0x2212: "-", 0x2044: "/", 0x66B: ".", 0x66C: ","}  # the minus, that of fractions, and Arabic ones of numbers
ZERO_DECIMALS = re.compile(r"(?<=\d)\.00?(?![.:]?\d)")  # 5.00 is 5; but 12.000, with digit grouping, is not 12

# How many words that are not in the question may come before the reference. Enough for "I believe that it was …",
# but a reply that lists candidates gets only this many guesses.
WORDS_BEFORE = 8


def normalized_words(text: str) -> list[str]:
    """Split into lower-case words without accents, punctuation and articles."""
    return [word for word in _words(text) if word not in ARTICLES]


def _words(text: str) -> list[str]:
    text = unicodedata.normalize("NFKD", FRACTION.sub(_in_digits, text)).casefold().translate(PLAIN_LETTERS)
    text = _plain_numbers(unicodedata.normalize("NFC", re.sub(r"[\u0300-\u036f'’]", "", text)))
    text = ZERO_DECIMALS.sub("", text)
    text = LETTER_SIGNS.sub(r"\g<0> ", text)
    signs = {i for kind in (NUMBER, LETTER_SIGNS) for match in kind.finditer(text) for i in range(*match.span())}
    spaced = "".join(" " if i not in signs and unicodedata.category(c)[0] in "PSZC" else c for i, c in enumerate(text))
    return UNSPACED.sub(r" \g<0> ", spaced).split()


def count_words(words: Sequence[str]) -> float:
    """How long a text of these words is: two characters of a script without spaces are about one word."""
    return sum(0.5 if UNSPACED.match(word) else 1 for word in words)


def matches(reply: str, reference: str, question: str = "") -> bool:
    """Whether the reply equals the reference or states it early, as whole words and without retracting it."""
    found = _states(reply, reference, question)
    return bool(_states(*(JOINT.sub("", text) for text in (reply, reference, question))) if found is None else found)


def _states(reply: str, reference: str, question: str) -> bool | None:
    """None if the reference is not in the reply."""
    reply_words, target = normalized_words(reply), normalized_words(reference)
    if LABELLED.search(reference):
        target.append("a")
        reply_words = _words_with_label(reply, target)
    if not target:  # the reference is only punctuation or an article, so it must match exactly
        return reply.strip() == reference.strip()
    if reply_words == target:
        return True
    start = _find(reply_words, target)
    if start is None:
        return None
    if reference.strip(" .") in ("No", "no") and not NO.search(reply):
        return False
    asked = set(normalized_words(question))
    before = [word for word in reply_words[:start] if word not in asked]
    leading = [word for word in reply_words[:start] if word not in SKIPPED]
    following = reply_words[start + len(target) :]
    is_retracted = bool(
        set(leading[-1:]) & (HEDGES | DENIALS)
        or (tuple(leading[-2:]) in DENIALS_OF_TWO and not asked.issuperset(leading[-2:]))
        or set(following[:1]) & HEDGES
        or "".join(reply_words[:start]).endswith(UNSPACED_HEDGES + UNSPACED_DENIALS_BEFORE)
        or "".join(following).startswith(UNSPACED_HEDGES + UNSPACED_DENIALS_AFTER)
        or _is_denied(reply, reply_words[:start])
        or (start and reply_words[0] in _other_choices(question, target))
    )
    return count_words(before) <= WORDS_BEFORE and not is_retracted


def _is_denied(reply: str, before: list[str]) -> bool:
    """Whether a denial and a preposition stand before the reference, in one sentence."""
    *_, denial, preposition = ["", "", *before]
    in_one = rf"(?i)\b{denial}\s+{preposition}\b"
    return denial in DENIALS and preposition in PREPOSITIONS and bool(re.search(in_one, re.sub("['’]", "", reply)))


def _other_choices(question: str, target: list[str]) -> set[str]:
    """A word of what the question names beside the reference: "tarn" for Orla of "the Orla or the Tarn"."""
    words = [word for word in normalized_words(question) if word not in PREPOSITIONS]
    gaps = [i for i, word in enumerate(words) if word == "or"]
    named = {words[i - 1] for i in gaps if i and words[i + 1 : i + 1 + len(target)] == target}
    named |= {words[i + 1] for i in gaps if words[:i][-len(target) :] == target and i + 1 < len(words)}
    return {word for word in named if words.count(word) == 1}


def f1(reply: str, reference: str) -> float:
    """Word overlap, as in SQuAD: a long list that contains the answer scores low."""
    reply_words, target = normalized_words(reply), normalized_words(reference)
    shared = (Counter(reply_words) & Counter(target)).total()
    if not shared:
        return float(reply_words == target and reply.strip() == reference.strip())
    return 2 * shared / (len(reply_words) + len(target))


def last_number_matches(reply: str, reference: str) -> bool:
    """Whether the reply's last number is the reference; earlier numbers are working steps."""
    right = as_number(reference)
    if right is None:
        return matches(reply, reference)
    numbers = LAST_NUMBER.findall(_plain_numbers(reply))
    try:
        return bool(numbers) and float(Fraction(numbers[-1]) if "/" in numbers[-1] else numbers[-1]) == right
    except (ValueError, ArithmeticError):  # a loop of digits
        return False


def as_number(text: str) -> float | None:
    text = _plain_numbers(text.replace("_", "?")).strip()  # Python reads 1_0 as 10
    try:
        number = float(Fraction(text) if re.fullmatch(r"-?(?:0|[1-9]\d*)/[1-9]\d*", text) else text)
    except (ValueError, ArithmeticError):
        return None
    return number if math.isfinite(number) else None


def _in_digits(fraction: re.Match[str]) -> str:
    """½ is 1/2, and 3½ is 7/2."""
    whole, part = fraction.groups()
    return str(int(whole or 0) + Fraction(unicodedata.normalize("NFKD", part).replace("\N{FRACTION SLASH}", "/")))


def _plain_numbers(text: str) -> str:
    """With no signs between groups of digits, a point with a digit before decimals, and the hyphen as minus; in the
    digits and signs of ASCII, whatever the script."""
    if not text.isascii():
        text = FRACTION.sub(_in_digits, text).translate(SIGNS)
        text = "".join(str(unicodedata.decimal(c, c)) for c in text)
    text = re.sub(r"(?<=\d)['’](?=\d{3}(?!\d))", "", text)
    text = GROUPED.sub(lambda match: re.sub(r"\D", "", match[0]), text)
    return re.sub(r"(?<![\w.])(?=\.\d)", "0", DECIMAL_COMMA.sub(r"\1.\2", text))


def _words_with_label(reply: str, target: Sequence[str]) -> list[str]:
    """Without articles, but with the "a" that ends the target, where the reply has it as a label, too."""
    words = _words(reply)
    if len(target) > 1:  # it follows the same word
        labels = {i for i in range(1, len(words)) if words[i - 1 : i + 1] == target[-2:]}
        return [word for i, word in enumerate(words) if word not in ARTICLES or i in labels]
    if words == target:
        return words
    first, *others = map(normalized_words, LABEL.split(reply))
    return first + [word for part in others for word in ("a", *part)]


def _find(words: list[str], target: list[str]) -> int | None:
    """Index of the first occurrence of `target`, whose last word may have Korean particles."""
    *first, last = target
    for i in range(len(words) - len(first)):
        word = words[i + len(first)]
        is_inflected = word.startswith(last) and not last[-1].isdigit() and PARTICLES.fullmatch(word, len(last))
        if words[i : i + len(first)] == first and (word == last or is_inflected):
            return i
    return None
