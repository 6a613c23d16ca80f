"""Prompts for distillation: read from the user's file or data set, or written by the frozen clean base; and filtered.

A prompt as data has it is one text, or the turns of a conversation, with what else its row says:

    {"prompt": "Name a river."}
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}
    {"prompt": "What is 2 + 2?", "answer": "4"}

Assistant turns at the end are the reply, and no part of the prompt. All formats of `pipelines.documents.conversations`
are read; tool calls, and a row's `tools`, reach the chat template.

To write a prompt, the base continues a user turn: the token ids that its chat template puts before the user's first
word. So the data that the base was post-trained on is not needed.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from evals.jsonl import Row, read_rows
from evals.suites.custom_checks import ReplyCheck, reply_check
from pipelines.documents.conversations import (
    FIELDS,
    LABELS,
    MEDIA,
    QUESTIONS,
    TURNS,
    has_media,
    is_wrong,
    readable_rows,
    said,
    tools_of,
    turns_of,
)
from pipelines.documents.corpus import dataset_rows, is_hub_id
from pipelines.documents.file_formats import TABLES, has_content
from pipelines.log import log
from pipelines.model_loading import OpenSubject
from pipelines.storage import ContentCache
from recovery.context_templates import with_context
from recovery.engines import Engine, Generation, Sampling
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat, Message, apply_template
from recovery.states import Prompt

MAX_PROMPT_TOKENS = 200  # of a prompt that the base writes
MAX_ROWS = 20_000  # read from a data set of the hub
ATTEMPTS = 6
MIN_PROMPTS = 16  # with fewer usable prompts, the base is considered unable to write them
KEPT_FIELDS = (*FIELDS, *LABELS, *MEDIA, "solution", "checks", "domain")  # of a row of a data set
ReplyText = Callable[[list[int], list[int]], str]  # the text to judge, of the tokens of a prompt and of its reply
PLACEHOLDER = "\u241f"  # stands for the user's text in a rendered chat template, to find where that text begins
MIN_WORDS, MAX_WORDS = 2, 1_000
MIN_CHARACTERS = 4  # instead of MIN_WORDS, in scripts without spaces between words
REPETITION_WORDS = 20  # texts shorter than this are not checked for repetition
GARBLED = re.compile(r"[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f]")
SPACELESS = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True)
class ChatPrompt:
    messages: list[Message]
    reply: list[Message] = field(default_factory=list)  # the assistant's turns that follow
    row: Row = ("", {})  # where it is from, and its fields
    context: str | None = None  # what only the teacher reads

    @classmethod
    def of(cls, text: str) -> "ChatPrompt":
        return cls([{"role": "user", "content": text}], row=("", {"prompt": text}))

    @property
    def text(self) -> str:
        if len(self.messages) == 1:
            return str(self.messages[0]["content"])
        return "\n\n".join(f"{message['role']}: {said(message)}" for message in self.messages)

    @property
    def user_text(self) -> str:
        """What the user says, without system prompts, which many conversations share."""
        return "\n\n".join(message["content"] for message in self.messages if message["role"] == "user")

    @property
    def questions(self) -> list[str]:
        """All texts that may be a question: the whole one, the user's, each turn of the user, and, where Alpaca's
        `input` is part of a turn, each of its two parts."""
        whole = "\n".join(map(said, self.messages))
        turns = [message["content"] for message in self.messages if message["role"] == "user"]
        fields = {} if any(name in self.row[1] for name in TURNS) else self.row[1]
        parts = [part for name in (*QUESTIONS, "input") if isinstance(part := fields.get(name), str)]
        return list(dict.fromkeys([whole, self.user_text, *turns, *parts]))

    @property
    def tools(self) -> list[Any] | None:
        return tools_of(self.row[1])

    @property
    def domain(self) -> str | None:
        domain = self.row[1].get("domain")
        return domain if isinstance(domain, str) else None

    @property
    def check(self) -> ReplyCheck | None:
        return reply_check(self.row, self.text)

    def tokenized(self, chat: Chat, template: str = "") -> Prompt:
        """The prompt for the student; with a context, also the one for the teacher."""
        teacher_prompt = None
        if self.context is not None:
            teacher_prompt = chat.prompt(with_context(self.messages, template, self.context), self.tools)
        return Prompt(self.text, chat.prompt(self.messages, self.tools), None, teacher_prompt)

    def as_conversation(self, chat: Chat) -> tuple[list[int], list[bool]]:
        """With its reply: the tokens, and which of them are the assistant's."""
        return chat.conversation([*self.messages, *self.reply], self.tools)


def parse_prompt(row: Row) -> ChatPrompt:
    location, fields = row
    try:
        messages, _ = turns_of(fields), tools_of(fields)
    except ValueError as error:
        raise RecoverError(f"{location} has {error}") from error
    if has_media(fields):
        raise RecoverError(f"{location} has pictures, videos or sounds, which are not read. Drop that row.")
    end = len(messages)
    while end and messages[end - 1]["role"] == "assistant":
        end -= 1
    if not messages:
        raise RecoverError(f'{location} has no "prompt" or "question", and no "messages" of a user. Add one.')
    if not any(message["role"] == "user" for message in messages[:end]) or messages[end - 1]["role"] == "system":
        raise RecoverError(
            f"{location} has a conversation without a user's turn to reply to. Add one, or drop the line."
        )
    reply = [] if is_wrong(fields) else messages[end:]
    return ChatPrompt(messages[:end], reply, row)


def with_context_of(prompt: ChatPrompt, fields: Sequence[str], recipe: str) -> ChatPrompt:
    """The prompt with the first of these fields of its row as its context; the reply of a conversation is an answer."""
    location, values = prompt.row
    context = next((values[name] for name in fields if values.get(name) is not None), None)
    if context is None and "answer" in fields and prompt.reply:
        context = "\n\n".join(map(said, prompt.reply))
    if isinstance(context, int | float) and not isinstance(context, bool):
        context = str(context)
    if not isinstance(context, str) or not context.strip():
        names = " or ".join(f'"{name}"' for name in fields)
        raise RecoverError(f"{location} has no {names}, which the recipe {recipe} shows its teacher. Add it as a text.")
    return replace(prompt, context=context)


def shuffled_contexts(prompts: Sequence[ChatPrompt], seed: int) -> list[ChatPrompt]:
    """The prompts of each context with another context; prompts without one stay as they are."""
    others = other_contexts([prompt.context for prompt in prompts if prompt.context is not None], seed)
    return [p if p.context is None else replace(p, context=others[p.context]) for p in prompts]


def other_contexts(contexts: Iterable[str], seed: int) -> dict[str, str]:
    """Another context for each; raises where there is one alone."""
    distinct = list(dict.fromkeys(contexts))
    if len(distinct) < 2:
        raise RecoverError(
            "There is one context alone, so there is no other to shuffle it with (distill.shuffle_contexts). Give "
            "different ones."
        )
    Random(f"{seed}/contexts").shuffle(distinct)
    return dict(zip(distinct, [*distinct[1:], *distinct[:1]], strict=True))  # one cycle through all of them: none stays


def share_of_checks(prompts: Sequence[ChatPrompt], reply_text: ReplyText) -> Callable[[Any], float]:
    """The share of the checks of its prompt that a rollout passes."""
    checks = {prompt.text: check for prompt in prompts if (check := prompt.check)}

    def share(sample: Any) -> float:
        if sample.prompt not in checks:
            return 0.0
        end = len(sample.tokens) - sample.target_count
        return checks[sample.prompt].share(reply_text(sample.tokens[:end], sample.tokens[end:]), not sample.truncated)

    return share


def read_prompts(path: Path) -> list[ChatPrompt]:
    """Read JSONL (JSON, Parquet, CSV) with a `prompt` or `messages` in each row, text with one prompt a line, or a data
    set of the hub.

    Only a data set is filtered; a file is used as it is."""
    if not path.exists() and is_hub_id(str(path)):
        return _from_hub(str(path))
    if path.is_file() and path.suffix.lower() in (".json", ".parquet", *TABLES):
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
    suffix = path.suffix.lower()
    is_jsonl = suffix in (".jsonl", ".ndjson") or (prompts[0].startswith("{") and suffix not in (".txt", ".md"))
    return [parse_prompt(row) for row in read_rows(path)] if is_jsonl else [ChatPrompt.of(text) for text in prompts]


class CannotWrite(RecoverError):
    """A base cannot write what a mix needs. Other errors than this one, such as a full disk, leave nothing out."""


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
        raise CannotWrite(f"The base wrote only {len(prompts)} usable prompts. Give a file of prompts with --prompts.")
    return prompts[:count]


def cached_prompts(cache: ContentCache, weights: str, count: int, seed: int, open_base: OpenSubject) -> list[str]:
    """The prompts that the base with these weights wrote before, or writes now: the same prompts every time."""

    def write() -> list[str]:
        log.info(f"The clean base writes {count} prompts")
        with open_base() as base:
            return write_prompts(base.engine, base.chat, count, seed)

    return list(cache.get_or_write("prompts", f"{weights}/{count}/{seed}", write))


def user_turn(chat: Chat) -> tuple[list[int], str]:
    """The token ids after which the user's text begins, and the first line that the template prints behind it."""
    if not chat.tokenizer.chat_template:
        raise CannotWrite(
            "The base has no chat template, so it cannot write prompts. Give a file of prompts with --prompts."
        )
    message = {"role": "user", "content": PLACEHOLDER}
    rendered = apply_template(chat.tokenizer, [message], tokenize=False, add_generation_prompt=True)
    before, placeholder, behind = rendered.partition(PLACEHOLDER)
    if not placeholder:
        raise CannotWrite(
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
            f"No row of {reference} has a prompt that can be read. A row needs a field prompt, instruction, question, "
            "messages or conversations, and no pictures, videos or sounds."
        )
    return prompts


def _from_table(path: Path) -> list[ChatPrompt]:
    unread = list[str]()
    try:
        rows = list(readable_rows(path, unread))
    except OSError as error:
        raise RecoverError(f"Cannot read {path}: {error}. Save it as JSON lines.") from error
    if unread and not rows:
        raise RecoverError(f"Cannot read {path}: {unread[0]}.")
    if unread:
        log.warning(f"Read only a part of {path}: {unread[0]}")
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
