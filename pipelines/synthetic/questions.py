"""Closed-book questions on documents: the clean base writes them from passages, and filters keep those that it answers
only with the passage. Their file is written once; after that it is the user's to edit."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import Any

from evals.contamination import remove_contaminated
from evals.jsonl import read_rows
from evals.subject import Subject
from evals.suites.answer_grading import count_words, normalized_words
from evals.suites.knowledge import Question, matches_reference
from pipelines.documents.corpus import Corpus
from pipelines.documents.passages import interleaved_passages
from pipelines.log import log
from pipelines.model_loading import open_subject
from pipelines.settings.sources import DEFAULT_ENGINE, EngineName
from pipelines.storage import JsonLines
from recovery.engines import Sampling
from recovery.errors import RecoverError

FIRST_BATCH = 8  # passages: a capable base has written at least one question about these
BATCH = 16  # passages
PER_PASSAGE = 3  # questions that the base is asked for
MAX_REPLY_TOKENS, MAX_ANSWER_TOKENS = 512, 64
ALTERNATIVE = (
    "Write questions yourself for --questions (JSONL with a question and an answer in each line), "
    "name a more capable model with --base, or do without: then recall of the documents is measured."
)
LEAKED_WORDS = 8  # consecutive words that a question shares with an evaluation item
MAX_ANSWER_WORDS = 12
MAX_COPIED_WORDS = 6  # consecutive words shared with the passage: more than most names have
MIN_SHARED_WORDS = 0.7  # share of words in common that makes two questions with one answer the same question
PROGRESS_EVERY = 20  # questions
ITEM_FIELDS = ("question", "prompt", "text")  # of an evaluation's file
QUESTION_PROMPT = """\
Read the passage, then write {count} questions about facts that it states, each with its answer.

- Whoever answers will not have the passage: a question names who or what it is about.
- Ask in other words than the passage's own.
- The answer is a name, a number or a few words that stand in the passage.
- One JSON object a line and nothing else: {{"question": "…", "answer": "…"}}

Passage:
{passage}"""
OPEN_BOOK_PROMPT = "Passage:\n{passage}\n\nAnswer in a few words, from the passage: {question}"
QUESTION_ANSWER_LINES = re.compile(
    r"^[\W\d]*(?:q(?:uestion)?)\W*\d*\W*[:.]\W*(?P<question>.+?)\s*\n[\W\d]*(?:a(?:nswer)?)\W*\d*\W*[:.]\s*(?P<answer>.+?)\s*$",
    re.IGNORECASE | re.MULTILINE,
)
REFERS_TO_PASSAGE = re.compile(
    r"\b(this|that|the (above|given|following))?\s*(passage|excerpt|paragraph)\b|\baccording to the\b|"
    r"\b(the|this) (text|document|article|author|section)\b|\b(mentioned|described|stated|listed) (above|here|below)\b",
    re.IGNORECASE,
)
Passage = tuple[str, str]  # (source, text)


@dataclass
class FilterCounts:
    passages: int = 0
    written: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # by reason

    def reasons(self, count: int | None = None) -> list[str]:
        """The most frequent reasons with their counts."""
        return [f"{times} {reason}" for reason, times in self.dropped.most_common(count)]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"dropped": dict(self.dropped)}


@dataclass(frozen=True)
class Draft:
    """A question that the base wrote; a row of the file, if it passes the filters."""

    question: str
    answer: str
    source: str = ""
    passage: str = ""


def parse_drafts(reply: str, source: str = "", passage: str = "") -> list[Draft]:
    """The JSON objects anywhere in the reply, or else its lines of "Q: … A: …"."""
    pairs = list(_json_pairs(reply)) or [
        (m["question"].strip(), m["answer"].strip(" *")) for m in QUESTION_ANSWER_LINES.finditer(reply)
    ]
    return [Draft(question, answer, source, passage) for question, answer in pairs]


def _json_pairs(reply: str) -> Iterator[tuple[str, str]]:
    decoder, start = json.JSONDecoder(), reply.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(reply, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            question, answer = (value.get(name) for name in ("question", "answer"))
            if isinstance(answer, int | float):
                answer = str(answer)
            if isinstance(question, str) and isinstance(answer, str):
                yield question.strip(), answer.strip()
            else:
                end = start + 1  # a list of pairs may be in it
        start = reply.find("{", end)


def rejection_reason(draft: Draft) -> str:
    """Why a draft is dropped, "" if it is not."""
    question, answer = normalized_words(draft.question), normalized_words(draft.answer)
    text = normalized_words(draft.passage)
    is_marked = draft.question.rstrip().endswith(("?", "？", "؟"))
    if not is_marked or max(count_words(question), len(draft.question.split())) < 3:
        return "not a question"
    if not answer or count_words(answer) > MAX_ANSWER_WORDS:
        return "the answer is empty or too long"
    if REFERS_TO_PASSAGE.search(draft.question):
        return "refers to the passage"
    if _contains(question, answer):
        return "the question contains the answer"
    if not _contains(text, answer):
        return "the passage does not contain the answer"
    copied = SequenceMatcher(None, question, text, autojunk=False).find_longest_match()
    if count_words(question[copied.a : copied.a + copied.size]) >= MAX_COPIED_WORDS:
        return "copies the passage's wording"
    return ""


def _contains(text: list[str], run: list[str]) -> bool:
    return any(text[i : i + len(run)] == run for i in range(len(text) - len(run) + 1))


def generate_questions(
    subject: Subject,
    passages: Iterable[Passage],
    counts: FilterCounts,
    *,
    evaluation_items: Sequence[str] = (),
    seed: int = 0,
    alternative: str = ALTERNATIVE,
) -> Iterator[Draft]:
    """Yield the questions that pass all filters, and add to `counts`.

    No question repeats one of the evaluation items. Raises, with the `alternative` as advice, if the base writes no
    question about the first passages."""
    filters = _Filters(subject, evaluation_items, counts)
    remaining = iter(passages)
    while batch := list(islice(remaining, BATCH if counts.passages else FIRST_BATCH)):
        prompts = [subject.chat.prompt(QUESTION_PROMPT.format(passage=text, count=PER_PASSAGE)) for _, text in batch]
        sampling = Sampling(MAX_REPLY_TOKENS, temperature=0.7, seed=(seed * 1_000_003 + counts.passages) % 2**31)
        written = zip(prompts, subject.engine.generate(prompts, sampling), strict=True)
        replies = [subject.reply_text(prompt, generation.tokens) for prompt, generation in written]
        drafts = [
            draft
            for passage, reply in zip(batch, replies, strict=True)
            for draft in parse_drafts(reply, *passage)[:PER_PASSAGE]
        ]
        counts.passages += len(batch)
        counts.written += len(drafts)
        if not counts.written:
            raise RecoverError(
                "The base is not capable of writing questions: its replies on the first "
                f"{counts.passages} passages contain no question. {alternative}"
            )
        for question in filters.accept(drafts):
            counts.kept += 1
            yield question


@dataclass
class _Filters:
    subject: Subject
    evaluation_items: Sequence[str]
    counts: FilterCounts
    by_answer: dict[tuple[str, ...], list[set[str]]] = field(default_factory=dict)  # words of what passed the rules

    def accept(self, drafts: list[Draft]) -> list[Draft]:
        """The drafts that pass all filters, the cheap ones first."""
        drafts = [draft for draft in drafts if self._passes_rules(draft)]
        leaked = remove_contaminated([d.question for d in drafts], self.evaluation_items, LEAKED_WORDS).contaminated
        drafts = self._drop(drafts, "repeats an evaluation item", [d.question in leaked for d in drafts])
        open_book = [OPEN_BOOK_PROMPT.format(passage=d.passage, question=d.question) for d in drafts]
        wrong = [not correct for correct in self._grade(drafts, open_book)]
        drafts = self._drop(drafts, "not answered with the passage", wrong)
        closed_book = [d.question for d in drafts]
        return self._drop(drafts, "answered without the passage", self._grade(drafts, closed_book))

    def _passes_rules(self, draft: Draft) -> bool:
        reason, words = rejection_reason(draft), set(normalized_words(draft.question))
        same_answer = self.by_answer.setdefault(tuple(normalized_words(draft.answer)), [])
        if not reason and any(len(words & other) >= MIN_SHARED_WORDS * len(words | other) for other in same_answer):
            reason = "repeats another question"
        if reason:
            self.counts.dropped[reason] += 1
        else:
            same_answer.append(words)
        return not reason

    def _drop(self, drafts: list[Draft], reason: str, dropped: list[bool]) -> list[Draft]:
        if any(dropped):
            self.counts.dropped[reason] += sum(dropped)
        return [draft for draft, drop in zip(drafts, dropped, strict=True) if not drop]

    def _grade(self, drafts: list[Draft], prompts: list[str]) -> list[bool]:
        answers = self.subject.answer(prompts, MAX_ANSWER_TOKENS) if prompts else []
        return [
            matches_reference(answer.text, Question(draft.question, draft.answer))
            for answer, draft in zip(answers, drafts, strict=True)
        ]


def write_questions(
    corpus: Corpus,
    base: str,
    out: Path,
    *,
    count: int,
    decontaminate: Sequence[Path] = (),
    engine: EngineName = DEFAULT_ENGINE,
    seed: int = 0,
) -> FilterCounts:
    """Have the base write up to `count` questions on the corpus into the new file `out`.

    No question repeats an item of the evaluation files in `decontaminate`."""
    items = [item for file in decontaminate for item in _items(file)]
    counts, accepted = FilterCounts(), list[Draft]()
    passages = ((corpus.source(number), passage) for number, passage in interleaved_passages(corpus.texts, seed))
    try:
        with open_subject(base, engine) as subject:
            questions = generate_questions(subject, passages, counts, evaluation_items=items, seed=seed)
            for question in islice(questions, count):
                accepted.append(question)
                if len(accepted) % PROGRESS_EVERY == 0:
                    log.info(f"  Kept {len(accepted)} of {counts.written} questions on {counts.passages} passages")
    except BaseException as error:
        if not accepted:
            raise
        JsonLines(out).write(map(asdict, accepted))
        kept = f"The {len(accepted)} questions kept so far are in {out}."
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(kept) from None
        log.warning(kept)
        raise
    if not accepted:
        raise RecoverError(
            f"None of the {counts.written} questions that the base wrote passed the filters "
            f"({', '.join(counts.reasons(3)) or 'no passage'}). "
            "Write questions yourself for --questions, or name a more capable model with --base."
        )
    JsonLines(out).write(map(asdict, accepted))
    return counts


def _items(file: Path) -> Iterator[str]:
    for location, row in read_rows(file):
        item = next((row[name] for name in ITEM_FIELDS if isinstance(row.get(name), str)), None)
        if item is None:
            raise RecoverError(
                f"{location} has no field {', '.join(ITEM_FIELDS[:-1])} or {ITEM_FIELDS[-1]}. "
                "Give --decontaminate JSONL files that have one in every row."
            )
        yield item
