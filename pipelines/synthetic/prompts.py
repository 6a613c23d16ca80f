"""Prompts for distillation: read from the user's file or data set, or written by the frozen clean base; and filtered.

To write a prompt, the base continues a user turn: the token ids that its chat template puts before the user's first
word. So the data that the base was post-trained on is not needed.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from evals.jsonl import read_rows
from pipelines.documents.conversations import FIELDS, rows_of
from pipelines.documents.corpus import dataset_rows, is_hub_id
from pipelines.documents.file_formats import Unreadable, has_content
from pipelines.log import log
from pipelines.model_loading import OpenSubject
from pipelines.storage import ContentCache
from pipelines.synthetic.chat_prompts import ChatPrompt, parse_prompt
from recovery.engines import Engine, Generation, Sampling
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat, apply_template
from recovery.states import Prompt

MAX_PROMPT_TOKENS = 200  # of a prompt that the base writes
MAX_ROWS = 20_000  # read from a data set of the hub
ATTEMPTS = 6
MIN_PROMPTS = 16  # with fewer usable prompts, the base is considered unable to write them
KEPT_FIELDS = (*FIELDS, "solution", "checks", "domain")  # of a row of a data set
PLACEHOLDER = "\u241f"  # stands for the user's text in a rendered chat template, to find where that text begins
MIN_WORDS, MAX_WORDS = 2, 1_000
MIN_CHARACTERS = 4  # instead of MIN_WORDS, in scripts without spaces between words
REPETITION_WORDS = 20  # texts shorter than this are not checked for repetition
GARBLED = re.compile(r"[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f]")
SPACELESS = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")


def read_prompts(path: Path) -> list[ChatPrompt]:
    """Read JSONL (JSON, Parquet) with a `prompt` or `messages` in each row, text with one prompt a line, or a data set
    of the hub.

    Only a data set is filtered; a file is used as it is."""
    if not path.exists() and is_hub_id(str(path)):
        return _from_hub(str(path))
    if path.is_file() and path.suffix.lower() in (".json", ".parquet"):
        return _from_table(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise RecoverError(f"The file {path} is not UTF-8 text. Save it as UTF-8.") from error
    except OSError as error:
        reason = error.strerror or error
        raise RecoverError(f"Cannot read {path}: {reason}. Give --prompts a file, or a data set of the hub.") from error
    prompts = [line.strip() for line in lines if line.strip()]
    if not prompts:
        raise RecoverError(f"The file {path} holds no prompt. Write one prompt a line.")
    is_jsonl = prompts[0].startswith("{") and path.suffix.lower() not in (".txt", ".md")
    return [parse_prompt(row) for row in read_rows(path)] if is_jsonl else [ChatPrompt.of(text) for text in prompts]


def as_prompts(texts: Iterable[str], chat: Chat) -> list[Prompt]:
    return [Prompt(text, chat.prompt(text)) for text in texts]


def write_prompts(engine: Engine, chat: Chat, count: int, seed: int = 0) -> list[str]:
    """Have the base write `count` different prompts; return fewer if it keeps repeating itself."""
    start, mark = user_turn(chat)
    first = chat.tokenizer.encode(mark, add_special_tokens=False)[0]
    end = first if first in chat.tokenizer.added_tokens_decoder else None
    prompts: list[str] = []
    for attempt in range(ATTEMPTS):
        samples = (count - len(prompts)) * 5 // 4 + 8
        generations = engine.generate([start] * samples, Sampling(MAX_PROMPT_TOKENS, seed=seed * 1000 + attempt))
        prompts = filter_prompts([*prompts, *(_user_text(chat, g, mark, end) for g in generations)])
        if len(prompts) >= count:
            break
    if len(prompts) < min(count, MIN_PROMPTS):
        raise RecoverError(f"The base wrote only {len(prompts)} usable prompts. Give a file of prompts with --prompts.")
    return prompts[:count]


def cached_prompts(folder: Path, weights: str, count: int, seed: int, open_base: OpenSubject) -> list[str]:
    """The prompts that the base with these weights wrote before, or writes now: the same prompts every time."""

    def write() -> list[str]:
        log.info(f"The clean base writes {count} prompts")
        with open_base() as base:
            return write_prompts(base.engine, base.chat, count, seed)

    return list(ContentCache(folder).get_or_write("prompts", f"{weights}/{count}/{seed}", write))


def user_turn(chat: Chat) -> tuple[list[int], str]:
    """The token ids after which the user's text begins, and the first line that the template prints behind it."""
    if not chat.tokenizer.chat_template:
        raise RecoverError(
            "The base has no chat template, so it cannot write prompts. Give a file of prompts with --prompts."
        )
    message = {"role": "user", "content": PLACEHOLDER}
    rendered = apply_template(chat.tokenizer, [message], tokenize=False, add_generation_prompt=True)
    before, placeholder, behind = rendered.partition(PLACEHOLDER)
    if not placeholder:
        raise RecoverError(
            "The chat template of the base hides where a user turn begins, so the base cannot write prompts. "
            "Give a file of prompts with --prompts."
        )
    mark = behind.strip().partition("\n")[0] or PLACEHOLDER
    return list(chat.tokenizer(before, add_special_tokens=False)["input_ids"]), mark


def _user_text(chat: Chat, generation: Generation, mark: str, end: int | None) -> str:
    """The text before the mark, by its token or in words: many bases go on with an answer. "" if it was cut off."""
    tokens = generation.tokens
    if end in tokens:
        return chat.text(tokens[: tokens.index(end)])
    text, found, _ = chat.text(tokens).partition(mark)
    return text if generation.finished or found else ""


def _from_hub(reference: str) -> list[ChatPrompt]:
    by_text: dict[str, ChatPrompt] = {}
    for number, row in enumerate(islice(dataset_rows(reference), MAX_ROWS), start=1):
        with suppress(RecoverError):  # a row without a prompt that can be used
            prompt = parse_prompt((f"Row {number} of {reference}", _kept(row)))
            by_text.setdefault(prompt.user_text.strip(), prompt)
    prompts = [by_text[text] for text in filter_prompts(by_text)]
    if not prompts:
        raise RecoverError(
            f"No row of {reference} has a prompt. A row needs a field prompt, instruction, question, messages or "
            "conversations."
        )
    return prompts


def _from_table(path: Path) -> list[ChatPrompt]:
    try:
        rows = list(rows_of(path))
    except (OSError, Unreadable) as error:
        raise RecoverError(f"Cannot read {path}: {error}. Save it as JSON lines.") from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise RecoverError(f"The file {path} is no list of objects. Give each a prompt or messages.")
    return [parse_prompt((f"Row {number} of {path}", _kept(row))) for number, row in enumerate(rows, start=1)]


def _kept(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in KEPT_FIELDS if has_content(row.get(name))}


def filter_prompts(texts: Iterable[str]) -> list[str]:
    """The prompts without those that are unsuitable or duplicates."""
    accepted: dict[str, str] = {}  # by normalised text
    for prompt in (text.strip() for text in texts):
        if _is_usable(prompt):
            accepted.setdefault(" ".join(prompt.casefold().split()).rstrip(".!? "), prompt)
    return list(accepted.values())


def _is_usable(prompt: str) -> bool:
    """Not too short or long, garbled, or repeating itself."""
    words = prompt.split()
    is_long_enough = len(words) >= MIN_WORDS or (SPACELESS.search(prompt) and len(prompt) >= MIN_CHARACTERS)
    grams = list(zip(words, words[1:], words[2:], strict=False))
    repeats_itself = len(words) >= REPETITION_WORDS and len(set(grams)) < 2 / 3 * len(grams)
    return bool(is_long_enough) and len(words) <= MAX_WORDS and not garbled(prompt) and not repeats_itself


def garbled(text: str) -> bool:
    return bool(GARBLED.search(text))
