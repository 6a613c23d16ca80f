"""What the student is asked while it is distilled: the user's prompts, or prompts the frozen clean base writes itself.

The base continues its own user turn: the ids its chat template prints before the user's first word. Nobody needs the
data that the base was post-trained on.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from evals.jsonl import read_rows, text_field
from pipelines.documents.hub import is_hub_id, rows_of
from pipelines.files import write_atomic
from pipelines.synthetic.prompt_filters import kinds, tidied
from recovery.engines import Engine, Sampling
from recovery.errors import RecoverError
from recovery.models.chat import Chat
from recovery.states import Prompt

LONGEST = 200  # tokens of a self-written prompt
MOST_ROWS = 20_000  # that are read of a data set of the hub
MARK = "\u241f"  # stands for the user's words while the place where they begin is looked for


def read_prompts(path: Path) -> list[str]:
    """JSONL with a `prompt` each, one prompt a line, or a data set of the hub: that one tidied, a file as it stands."""
    if not path.exists() and is_hub_id(str(path)):
        return _from_hub(str(path))
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise RecoverError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except OSError as error:
        raise RecoverError(f"cannot read {path}: {error.strerror or error}; give --prompts a file") from error
    said = [line.strip() for line in lines if line.strip()]
    if not said:
        raise RecoverError(f"{path} holds no prompt")
    return [text_field(row, "prompt") for row in read_rows(path)] if said[0].startswith("{") else said


def as_prompts(texts: Iterable[str], chat: Chat) -> list[Prompt]:
    return [Prompt(text, chat.prompt(text)) for text in texts]


def write_prompts(engine: Engine, chat: Chat, count: int, seed: int = 0) -> list[str]:
    """`count` different prompts in the base's own words; fewer, if it keeps repeating itself."""
    start = _user_turn(chat)
    kept: list[str] = []
    for attempt in range(6):
        wanted = (count - len(kept)) * 5 // 4 + 8
        written = engine.generate([start] * wanted, Sampling(LONGEST, seed=seed * 1000 + attempt))
        kept = tidied([*kept, *(chat.text(g.tokens) for g in written if g.finished)]).kept
        if len(kept) >= count:
            break
    if len(kept) < min(count, 16):
        raise RecoverError(
            f"the base model wrote only {len(kept)} usable prompts of its own; give a file of prompts with --prompts"
        )
    return kept[:count]


def cached_prompts(folder: Path, weights: str, count: int, seed: int, write: Callable[[], list[str]]) -> list[str]:
    """What the base with these weights has written before, else what it writes now; the same prompts every time."""
    key = hashlib.sha256(f"{weights}/{count}/{seed}".encode()).hexdigest()[:16]
    file = folder / f"prompts-{key}.json"
    if not file.is_file():
        write_atomic(file, [json.dumps(write(), ensure_ascii=False)])
    return list(json.loads(file.read_text(encoding="utf-8")))


def in_words(prompts: list[str]) -> str:
    """Such as "900 instructions, 300 questions, 80 of chat"."""
    count = kinds(prompts)
    return f"{count['instruction']:,} instructions, {count['question']:,} questions, {count['chat']:,} of chat"


def _user_turn(chat: Chat) -> list[int]:
    """The ids after which the user's words begin."""
    if not chat.tokenizer.chat_template:
        raise RecoverError("the base has no chat template, so it cannot write prompts; give a file with --prompts")
    rendered = chat.tokenizer.apply_chat_template([{"role": "user", "content": MARK}], tokenize=False)
    before, found, _ = rendered.partition(MARK)
    if not found:
        raise RecoverError("the chat template hides where a user turn begins; give a file of prompts with --prompts")
    return list(chat.tokenizer(before, add_special_tokens=False)["input_ids"])


def _from_hub(reference: str) -> list[str]:
    prompts = tidied(_asked(islice(rows_of(reference), MOST_ROWS))).kept
    if not prompts:
        raise RecoverError(
            f"no row of {reference} has a prompt (a field prompt, instruction, question, messages or conversations)"
        )
    return prompts


def _asked(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        found = next((row[name] for name in ("prompt", "messages", "conversations") if row.get(name)), None)
        if isinstance(found, list):
            found = next((m.get("content") or m.get("value") for m in found if _by_user(m)), None)
        found = found or row.get("instruction") or row.get("question")
        if isinstance(found, str):
            more = row.get("input")
            yield f"{found}\n\n{more}" if isinstance(more, str) and more.strip() else found


def _by_user(message: Any) -> bool:
    return isinstance(message, dict) and (message.get("role") or message.get("from")) in ("user", "human")
