"""IFEval's kinds of instruction: each changes the draft of an answer and returns its arguments under IFEval's names.

They are applied in the order of `KINDS`: a later one can read what the answer will certainly contain."""

import math
import re
from collections.abc import Callable
from typing import Any

from recovery.lab.chat import answer_sentences as sentences
from recovery.lab.chat.answer_drafts import Draft
from recovery.lab.chat.topics import ADJECTIVES, noun

Kwargs = dict[str, Any]

SPLITTERS = ("Section", "SECTION", "Part", "PART", "Chapter", "Day", "Step", "Paragraph", "PARAGRAPH", "Topic")
END_PHRASES = (
    "Any other questions?",
    "Is there anything else I can help with?",
    "Long live the {n}!",
    "That is all about the {n}.",
    "Think of the {a} {n}.",
    "Never trust a {n}.",
    "My {a} {n} says hello.",
    "I prefer a {a} {n} anyway.",
    "Let the {n} decide.",
)
WORD_COUNTS = (20, 30, 40, 50, 60, 80, 100, 120, 150, 200)
STOP_WORDS = {"there", "their", "that", "what", "with", "than", "them", "those", "from", "into", "this", "will"}


def _common(texts: tuple[str, ...]) -> list[str]:
    return sorted({word for text in texts for word in re.findall(r"[a-z]{4,}", text.lower())} - STOP_WORDS)


COMMON = _common(sentences.GENERAL)


def bullets(draft: Draft) -> Kwargs:
    draft.layout, draft.parts = "bullets", draft.rng.randint(2, 6)
    return {"num_bullets": draft.parts}


def paragraphs(draft: Draft) -> Kwargs:
    draft.layout, draft.parts = "stars", draft.rng.randint(2, 5)
    return {"num_paragraphs": draft.parts}


def nth_paragraph(draft: Draft) -> Kwargs:
    draft.layout, draft.parts = "paragraphs", draft.rng.randint(2, 4)
    nth, (word,) = draft.rng.randint(1, draft.parts), draft.new_words()
    draft.first_word = nth, draft.rng.choice(sentences.FIRST_WORD).replace("{k}", word.capitalize())
    return {"num_paragraphs": draft.parts, "nth_paragraph": nth, "first_word": word}


def sections(draft: Draft) -> Kwargs:
    draft.layout, draft.parts, draft.splitter = "sections", draft.rng.randint(2, 5), draft.rng.choice(SPLITTERS)
    return {"section_spliter": draft.splitter, "num_sections": draft.parts}


def two_responses(draft: Draft) -> Kwargs:
    draft.layout, draft.parts = "two", 2
    return {}


def json_format(draft: Draft) -> Kwargs:
    draft.layout = "json"
    return {}


def constrained(draft: Draft) -> Kwargs:
    draft.layout = "constrained"
    return {}


def language(draft: Draft) -> Kwargs:
    draft.language = draft.rng.choice(list(sentences.LANGUAGES))
    draft.per_part, draft.count = 1, draft.rng.randint(2, 4) if draft.layout == "plain" else 0
    return {"language": draft.language}


def existence(draft: Draft) -> Kwargs:
    words = draft.new_words(draft.rng.randint(1, 3))
    for word in words:
        draft.insert(word)
    return {"keywords": words}


def frequency(draft: Draft) -> Kwargs:
    (word,), n = draft.new_words(), draft.rng.randint(2, 4)
    at_least = draft.rng.random() < 0.75
    draft.insert(word, n if at_least else draft.rng.randint(0, 1))
    draft.avoid.append(re.escape(word))
    return {"keyword": word, "frequency": n, "relation": _relation(at_least)}


def placeholders(draft: Draft) -> Kwargs:
    n = draft.rng.randint(1, 4)
    draft.inserts += draft.rng.sample(sentences.PLACEHOLDERS, n)
    return {"num_placeholders": n}


def capital_words(draft: Draft) -> Kwargs:
    at_least, n = draft.rng.random() < 0.8, draft.rng.randint(1, 5)
    if at_least:
        capitals = draft.rng.sample(sentences.CAPITALS, 2 * math.ceil(n / 2))
        draft.inserts += [
            draft.rng.choice(sentences.SHOUTS).format(a=a, b=b)
            for a, b in zip(capitals[::2], capitals[1::2], strict=True)
        ]
    else:
        draft.avoid.append(r"\b[A-Z]+\b")
        n += 3  # "P.S." and similar count, too
    return {"capital_frequency": n, "capital_relation": _relation(at_least)}


def postscript(draft: Draft) -> Kwargs:
    marker = draft.rng.choice(("P.S.", "P.P.S"))
    draft.postscript = f"{marker.rstrip('.')}. {draft.rng.choice(sentences.POSTSCRIPTS)}"
    return {"postscript_marker": marker}


def title(draft: Draft) -> Kwargs:
    draft.title = draft.rng.choice(("{t}", "{t}", "All about {t}", "On {t}")).replace("{t}", draft.topic)
    if draft.language:
        draft.title = sentences.LANGUAGES[draft.language][1].rstrip(".")
    return {}


def end_phrase(draft: Draft) -> Kwargs:
    phrase = draft.rng.choice(END_PHRASES)
    draft.end = phrase.format(n=noun(draft.rng, draft.split), a=draft.rng.choice(ADJECTIVES))
    return {"end_phrase": draft.end}


def highlights(draft: Draft) -> Kwargs:
    draft.highlights = draft.rng.randint(1, 4)
    draft.count = max(draft.count, draft.highlights + 1)
    return {"num_highlights": draft.highlights}


def letter_frequency(draft: Draft) -> Kwargs:
    at_least = draft.rng.random() < 0.75
    if at_least:
        letter = draft.rng.choice(list(sentences.LETTERS))
        n = draft.rng.randint(2, sentences.LETTERS[letter].lower().count(letter))
        draft.inserts.append(sentences.LETTERS[letter])
    else:
        letter = draft.rng.choice("jqxz")
        n = 2 * draft.fixed_text().lower().count(letter) + draft.rng.randint(2, 4)
        draft.avoid.append(f"(?i){letter}")
    return {"letter": letter, "let_frequency": n, "let_relation": _relation(at_least)}


def forbidden_words(draft: Draft) -> Kwargs:
    fixed = draft.fixed_text().lower()
    near = _common(draft.sentence_bank()[:7]) if draft.rng.random() < 0.6 else COMMON  # words it would use
    words = [word for word in near if not re.search(rf"\b{word}\b", fixed)]
    words = draft.rng.sample(words, draft.rng.randint(1, 3))
    draft.avoid += [rf"(?i)\b{word}\b" for word in words]
    return {"forbidden_words": words}


def number_sentences(draft: Draft) -> Kwargs:
    at_least = draft.rng.random() < 0.6
    if at_least:
        n = draft.rng.randint(2, 8)
        draft.count = max(n, len(draft.inserts)) + 1
    else:
        n = len(draft.inserts) + draft.rng.randint(3, 6)
        draft.count = max(1, n - draft.rng.randint(2, 3))
        n += bool(draft.postscript) * 2 + bool(draft.end)  # some of what follows the body may be counted
    return {"num_sentences": n, "relation": _relation(at_least)}


def number_words(draft: Draft) -> Kwargs:
    at_least = draft.rng.random() < 0.65
    if at_least:
        n = draft.rng.choice(WORD_COUNTS)
        draft.min_words = math.ceil(n * 1.2) + 4
    else:
        sentence_count = len(draft.inserts) + max(draft.parts, draft.count, 2) + 2
        n = 10 * (sentence_count + len(draft.fixed_text().split()) // 10 + draft.rng.randint(1, 3))
    return {"num_words": n, "relation": _relation(at_least)}


def upper_case(draft: Draft) -> Kwargs:
    draft.case, draft.min_words = (
        "upper",
        max(draft.min_words, 44),
    )  # in shorter texts, language detection is unreliable
    return {}


def lower_case(draft: Draft) -> Kwargs:
    draft.case, draft.min_words = "lower", max(draft.min_words, 22)
    return {}


def no_comma(draft: Draft) -> Kwargs:
    draft.avoid.append(",")
    return {}


def quotation(draft: Draft) -> Kwargs:
    draft.quoted = True
    return {}


def repeat_prompt(draft: Draft) -> Kwargs:
    return {"prompt_to_repeat": ""}  # filled in once the prompt is complete


def _relation(at_least: bool) -> str:
    return "at least" if at_least else "less than"


REPEAT = "combination:repeat_prompt"
CONSTRAINED = "detectable_format:constrained_response"
KINDS: dict[str, Callable[[Draft], Kwargs]] = {
    "detectable_format:number_bullet_lists": bullets,
    "length_constraints:number_paragraphs": paragraphs,
    "length_constraints:nth_paragraph_first_word": nth_paragraph,
    "detectable_format:multiple_sections": sections,
    "combination:two_responses": two_responses,
    "detectable_format:json_format": json_format,
    CONSTRAINED: constrained,
    "language:response_language": language,
    "keywords:existence": existence,
    "keywords:frequency": frequency,
    "detectable_content:number_placeholders": placeholders,
    "change_case:capital_word_frequency": capital_words,
    "detectable_content:postscript": postscript,
    "detectable_format:title": title,
    "startend:end_checker": end_phrase,
    "detectable_format:number_highlighted_sections": highlights,
    "keywords:letter_frequency": letter_frequency,
    "keywords:forbidden_words": forbidden_words,
    "length_constraints:number_sentences": number_sentences,
    "length_constraints:number_words": number_words,
    "change_case:english_capital": upper_case,
    "change_case:english_lowercase": lower_case,
    "punctuation:no_comma": no_comma,
    "startend:quotation": quotation,
    REPEAT: repeat_prompt,
}
