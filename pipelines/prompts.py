"""What the student is asked while it is distilled: the user's prompts, or prompts the frozen clean base writes itself.

The base continues its own user turn: the ids its chat template prints before the user's first word. Nobody needs the
data that the base was post-trained on.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from recovery.chat import Chat
from recovery.engines import Engine, Sampling
from recovery.errors import RecoverError
from recovery.states import Prompt

LONGEST = 200  # tokens of a self-written prompt
MARK = "\u241f"  # stands for the user's words while the place where they begin is looked for


def read_prompts(path: Path) -> list[str]:
    """JSONL with a `prompt` each, or one prompt a line."""
    if not path.is_file():
        raise RecoverError(f"there is no file {path}; give --prompts a JSONL file or one prompt a line")
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise RecoverError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    texts = [_prompt_of(line, path, number) for number, line in enumerate(lines, 1)]
    if not texts:
        raise RecoverError(f"{path} holds no prompt")
    return texts


def as_prompts(texts: Iterable[str], chat: Chat) -> list[Prompt]:
    return [Prompt(text, chat.prompt(text)) for text in texts]


def write_prompts(engine: Engine, chat: Chat, count: int, seed: int = 0) -> list[str]:
    """`count` different prompts in the base's own words; fewer, if it keeps repeating itself."""
    start = _user_turn(chat)
    kept: dict[str, None] = {}
    for attempt in range(6):
        wanted = (count - len(kept)) * 5 // 4 + 8
        for generation in engine.generate([start] * wanted, Sampling(LONGEST, seed=seed * 1000 + attempt)):
            text = chat.text(generation.tokens).strip()
            if generation.finished and len(text.split()) >= 2:
                kept.setdefault(text)
        if len(kept) >= count:
            break
    if len(kept) < min(count, 16):
        raise RecoverError(
            f"the base model wrote only {len(kept)} usable prompts of its own; give a file of prompts with --prompts"
        )
    return list(kept)[:count]


def _user_turn(chat: Chat) -> list[int]:
    """The ids after which the user's words begin."""
    rendered = chat.tokenizer.apply_chat_template([{"role": "user", "content": MARK}], tokenize=False)
    before, found, _ = rendered.partition(MARK)
    if not found:
        raise RecoverError("the chat template hides where a user turn begins; give a file of prompts with --prompts")
    return list(chat.tokenizer(before, add_special_tokens=False)["input_ids"])


def _prompt_of(line: str, path: Path, number: int) -> str:
    if not line.lstrip().startswith("{"):
        return line.strip()
    try:
        text = json.loads(line)["prompt"]
    except (json.JSONDecodeError, KeyError) as error:
        raise RecoverError(f'line {number} of {path} is not JSON with a "prompt"') from error
    if not isinstance(text, str) or not text.strip():
        raise RecoverError(f'the "prompt" in line {number} of {path} is not a text')
    return text.strip()
