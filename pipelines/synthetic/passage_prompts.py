"""Prompts about the passages of documents: closed-book questions, and openings of passages, continued as text.

In mid-training in context the student reads no passage, and the teacher has read its own; a passage without a question
is taught by its opening alone. Of earlier cycles only openings are prompts, never the questions: the gate needs them to
measure how much of each cycle the model still knows.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from heapq import nlargest
from random import Random
from typing import Any

from evals.subject import Subject
from evals.suites.answer_grading import UNSPACED
from pipelines.documents.corpus import CorpusSnapshot
from pipelines.documents.passages import MIN_WORDS, passages_of
from pipelines.log import log
from pipelines.synthetic.prompts import other_contexts
from pipelines.synthetic.questions import FilterCounts, generate_questions
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat
from recovery.states import Prompt

MIN_NOTE_WORDS = 2  # of a passage: one to begin with, and one to continue
ALTERNATIVES = (  # to the base's own questions; in a cycle, --teacher-context belongs to the distillation
    'Give questions (JSONL with "question", "answer" and "passage" in each line) to `recover midtrain --recipe '
    "in-context --teacher-context FILE`, name a more capable model with --base, or set midtrain.recipe=midtrain."
)
EARLIER_DOMAIN = "earlier"  # domain of prompts and documents of earlier cycles
WORD = re.compile(rf"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern})\S)+")
PREFIX_WORDS = 8  # of a passage at least, for an opening of earlier documents
MIN_SHARE, MAX_SHARE = 0.1, 0.75  # of a passage's words that the prefix has


def passages_in(texts: Iterable[str]) -> list[str]:
    """All passages of MIN_WORDS, each once; of a corpus of short notes, the notes."""
    texts = list(texts)
    for min_words in (MIN_WORDS, MIN_NOTE_WORDS):
        if passages := list(dict.fromkeys(passage for text in texts for passage in passages_of(text, min_words))):
            return passages
    raise RecoverError(
        "The documents have no passage of at least two words to learn in context. Give other documents, or mid-train "
        "with the recipe midtrain."
    )


def write_passage_questions(
    subject: Subject, passages: Sequence[str], evaluation_items: Sequence[str], seed: int
) -> dict[str, Any]:
    """The base's own questions on all the passages, and how many were written, kept and dropped.

    Raises RecoverError if the base writes none."""
    counts = FilterCounts()
    named = (("", passage) for passage in passages)
    questions = generate_questions(
        subject, named, counts, evaluation_items=evaluation_items, seed=seed, alternative=ALTERNATIVES
    )
    rows = [asdict(question) for question in questions]
    log.info(f"  Kept {counts.kept} of {counts.written} questions on {counts.passages} passages")
    return {"questions": rows, "counts": counts.as_dict()}


def opening_prompts(passages: Sequence[str], chat: Chat, seed: int, *, shuffled: bool = False) -> list[Prompt]:
    """The beginning of each passage as text; the teacher has read the passage before it, or another (`shuffled`)."""
    encode = partial(chat.tokenizer.encode, add_special_tokens=False, split_special_tokens=True)
    start, between = [chat.document_start], [chat.separator]
    between += [] if chat.document_bos is None else start
    read_by_teacher = other_contexts(passages, seed) if shuffled else {passage: passage for passage in passages}
    prompts = []
    for passage in passages:
        opening = opening_of(passage, Random(f"{seed}/{passage}"))
        ids, context = list(encode(opening)), list(encode(read_by_teacher[passage]))
        prompts.append(Prompt(opening, start + ids, None, start + context + between + ids))
    return prompts


def document_prefixes(corpora: Sequence[CorpusSnapshot], count: int, seed: int) -> list[str]:
    """Prefixes of up to `count` random passages, equally many from each corpus."""
    prefixes = []
    for number, corpus in enumerate(corpora):
        share = count // len(corpora) + (number < count % len(corpora))
        rng = Random(f"{seed}/{corpus.hash}")
        passages = (passage for text in corpus.texts for passage in passages_of(text, PREFIX_WORDS))
        chosen = nlargest(share, passages, key=lambda _: rng.random())  # a sample, without all passages in memory
        prefixes += [opening_of(passage, rng) for passage in chosen]
    return list(dict.fromkeys(prefixes))


def as_prefix_prompts(texts: Sequence[str], chat: Chat) -> list[Prompt]:
    """Tokenize prefixes as mid-training reads documents: from a document's start, without the chat template."""
    tokenize = partial(chat.tokenizer, add_special_tokens=False, split_special_tokens=True)
    return [Prompt(text, [chat.document_start, *tokenize(text)["input_ids"]], EARLIER_DOMAIN) for text in texts]


def opening_of(passage: str, rng: Random) -> str:
    words = list(WORD.finditer(passage))
    length = max(2, int(len(words) * rng.uniform(MIN_SHARE, MAX_SHARE)))
    return passage[: words[max(0, min(length, len(words) - 1) - 1)].end()]
