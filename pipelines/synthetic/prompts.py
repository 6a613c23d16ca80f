"""Prompts for distillation: read from the user's file or data set, or written by the frozen clean base.

To write a prompt, the base continues a user turn: the token ids that its chat template puts before the user's first
word. So the data that the base was post-trained on is not needed.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from evals.jsonl import read_rows, text_field
from pipelines.documents.hub import dataset_rows, is_hub_id
from pipelines.storage.content_cache import ContentCache
from pipelines.synthetic.prompt_filters import count_kinds, filter_prompts
from recovery.engines import Engine, Sampling
from recovery.errors import RecoverError
from recovery.models.chat_template import Chat
from recovery.states import Prompt

MAX_PROMPT_TOKENS = 200  # of a prompt that the base writes
MAX_ROWS = 20_000  # read from a data set of the hub
ATTEMPTS = 6
MIN_PROMPTS = 16  # with fewer usable prompts, the base is considered unable to write them
PLACEHOLDER = "\u241f"  # stands for the user's text in a rendered chat template, to find where that text begins


def read_prompts(path: Path) -> list[str]:
    """Read JSONL with a `prompt` in each line, plain text with one prompt a line, or a data set of the hub.

    Only a data set is filtered; a file is used as it is."""
    if not path.exists() and is_hub_id(str(path)):
        return _from_hub(str(path))
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
    return [text_field(row, "prompt") for row in read_rows(path)] if prompts[0].startswith("{") else prompts


def as_prompts(texts: Iterable[str], chat: Chat) -> list[Prompt]:
    return [Prompt(text, chat.prompt(text)) for text in texts]


def write_prompts(engine: Engine, chat: Chat, count: int, seed: int = 0) -> list[str]:
    """Have the base write `count` different prompts; return fewer if it keeps repeating itself."""
    start = user_turn(chat)
    prompts: list[str] = []
    for attempt in range(ATTEMPTS):
        samples = (count - len(prompts)) * 5 // 4 + 8
        generations = engine.generate([start] * samples, Sampling(MAX_PROMPT_TOKENS, seed=seed * 1000 + attempt))
        prompts = filter_prompts([*prompts, *(chat.text(g.tokens) for g in generations if g.finished)]).prompts
        if len(prompts) >= count:
            break
    if len(prompts) < min(count, MIN_PROMPTS):
        raise RecoverError(f"The base wrote only {len(prompts)} usable prompts. Give a file of prompts with --prompts.")
    return prompts[:count]


def cached_prompts(folder: Path, weights: str, count: int, seed: int, write: Callable[[], list[str]]) -> list[str]:
    """The prompts that the base with these weights wrote before, or writes now: the same prompts every time."""
    return list(ContentCache(folder).get_or_write("prompts", prompts_inputs(weights, count, seed), write))


def prompts_inputs(weights: str, count: int, seed: int) -> str:
    """What decides the prompts that a base writes; their file is named by it."""
    return f"{weights}/{count}/{seed}"


def describe_kinds(prompts: list[str]) -> str:
    """Such as "900 instructions, 300 questions, 80 chat messages"."""
    count = count_kinds(prompts)
    return f"{count['instruction']:,} instructions, {count['question']:,} questions, {count['chat']:,} chat messages"


def user_turn(chat: Chat) -> list[int]:
    """The token ids after which the user's text begins."""
    if not chat.tokenizer.chat_template:
        raise RecoverError(
            "The base has no chat template, so it cannot write prompts. Give a file of prompts with --prompts."
        )
    rendered = chat.tokenizer.apply_chat_template([{"role": "user", "content": PLACEHOLDER}], tokenize=False)
    before, placeholder, _ = rendered.partition(PLACEHOLDER)
    if not placeholder:
        raise RecoverError(
            "The chat template of the base hides where a user turn begins, so the base cannot write prompts. "
            "Give a file of prompts with --prompts."
        )
    return list(chat.tokenizer(before, add_special_tokens=False)["input_ids"])


def _from_hub(reference: str) -> list[str]:
    prompts = filter_prompts(_prompt_texts(islice(dataset_rows(reference), MAX_ROWS))).prompts
    if not prompts:
        raise RecoverError(
            f"No row of {reference} has a prompt. A row needs a field prompt, instruction, question, messages or "
            "conversations."
        )
    return prompts


def _prompt_texts(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The prompt, or the first user message, of each row that has one."""
    for row in rows:
        prompt = next((row[name] for name in ("prompt", "messages", "conversations") if row.get(name)), None)
        if isinstance(prompt, list):
            prompt = next((m.get("content") or m.get("value") for m in prompt if _by_user(m)), None)
        prompt = prompt or row.get("instruction") or row.get("question")
        if isinstance(prompt, str):
            context = row.get("input")
            yield f"{prompt}\n\n{context}" if isinstance(context, str) and context.strip() else prompt


def _by_user(message: Any) -> bool:
    return isinstance(message, dict) and (message.get("role") or message.get("from")) in ("user", "human")
